"""Which workers are alive: each announces itself under a key that expires unless it is announced again.

Keys, on the broker's server: `docexpress:1:workers` (set of ids) and `docexpress:1:worker:{id}` (JSON).
"""

from __future__ import annotations

import logging
from typing import Annotated, Any, Literal

import redis
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cache_store.connection import redis_errors
from cache_store.keys import ROOT

log = logging.getLogger(__name__)

WORKERS = f"{ROOT}:workers"
WORKER_PREFIX = f"{ROOT}:worker:"

# The set of ids outlives any worker's own key; without workers it goes, too.
_SET_TTL_SECONDS = 24 * 3600
_MAX_RECORD_BYTES = 64 * 1024

# Members whose key has expired leave the set in the same step, so that no worker announced meanwhile is lost.
_ALIVE = """
local records = {}
for _, id in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local key = ARGV[1] .. id
  local kind = redis.call('TYPE', key).ok
  if kind == 'string' then
    records[#records + 1] = id
    records[#records + 1] = redis.call('GETRANGE', key, 0, ARGV[2])
  elseif kind == 'none' then
    redis.call('SREM', KEYS[1], id)
  end
end
return records
"""

# Printable and bounded: records are shown on terminals, and anything might stand in a shared server.
Printable = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+$")]
Short = Annotated[Printable, Field(max_length=256)]


class WorkerRecord(BaseModel):
    """What a worker says of itself. Raises ValueError (pydantic.ValidationError) for values out of bounds.

    address          host:port, or unix:path, of its gRPC server
    window           trained positions of the model
    capacity         calls computed at once, decodes apart
    decode_rows      decodes written at once
    load             calls that run or wait now
    bytes_per_token  of an uncompressed KV cache
    hot_states       names of states in its memory
    draining         takes no new work
    tls              what its server asks for: nothing, TLS, or TLS with a certificate of the caller
    started_at       Unix time in seconds
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,128}$")]
    address: Short
    model_name: Short
    model_fingerprint: Short
    tokenizer_fingerprint: Short
    device: Short
    window: int = Field(ge=1, lt=2**32)
    capacity: int = Field(ge=1, le=4096)
    decode_rows: int = Field(default=1, ge=1, le=4096)
    load: int = Field(default=0, ge=0, lt=2**31)
    bytes_per_token: int = Field(ge=0, lt=2**48)
    hot_states: Annotated[tuple[Short, ...], Field(max_length=256, strict=False)] = ()
    draining: bool = False
    tls: Literal["none", "server", "mutual"] = "none"
    version: Short
    started_at: float = Field(ge=0, lt=2**40)


def announce(client: redis.Redis, record: WorkerRecord, ttl: float) -> None:
    """Makes a worker visible for `ttl` seconds from now. Raises StoreUnavailable, StoreFull."""
    with redis_errors(client):
        pipe: Any = client.pipeline(transaction=True)
        pipe.set(WORKER_PREFIX + record.id, record.model_dump_json(), px=max(1, round(ttl * 1000)))
        pipe.sadd(WORKERS, record.id)
        pipe.expire(WORKERS, _SET_TTL_SECONDS)
        pipe.execute()


def withdraw(client: redis.Redis, worker_id: str) -> None:
    """Removes a worker, or does nothing if it is not there. Raises StoreUnavailable."""
    with redis_errors(client):
        pipe: Any = client.pipeline(transaction=True)
        pipe.unlink(WORKER_PREFIX + worker_id)
        pipe.srem(WORKERS, worker_id)
        pipe.execute()


def alive(client: redis.Redis) -> list[WorkerRecord]:
    """The workers whose announcement has not expired, by id; records that are none are left out.

    Raises StoreUnavailable.
    """
    with redis_errors(client):
        reply: Any = client.eval(_ALIVE, 1, WORKERS, WORKER_PREFIX, _MAX_RECORD_BYTES)
    found = [record for at in range(0, len(reply), 2) if (record := sanitized(reply[at], reply[at + 1]))]
    return sorted(found, key=lambda record: record.id)


def sanitized(worker_id: bytes, raw: bytes) -> WorkerRecord | None:
    """The record in `raw` if it is a valid one of that worker, else None (and a line in the log)."""
    try:
        record = WorkerRecord.model_validate_json(raw)
    except ValidationError as error:
        log.warning("The record of worker %r is not valid (%d errors).", worker_id[:80], error.error_count())
        return None
    if record.id.encode() != worker_id:
        log.warning("The record of worker %r names another worker.", worker_id[:80])
        return None
    return record
