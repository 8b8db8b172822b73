"""API keys: each stands for a tenant. Kept in Redis under their SHA-256, so that nobody can read them there.

A key is 256 random bits, so a plain hash cannot be turned back by guessing; a slow one would buy nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import secrets
import time
from typing import Any

import redis

from cache_store.keys import ROOT, check_tenant
from orchestrator.connection import job_store_errors
from orchestrator.errors import OptionError

KEY_PREFIX = "dx_"
_KEYS = f"{ROOT}:orchestrator:api_keys"
_RATE = f"{ROOT}:orchestrator:api_rate"
_MINUTE = 60
_MAX_SECRET = 200


@dataclasses.dataclass(frozen=True, slots=True)
class ApiKey:
    """What is known of a key. `requests_per_minute` 0 is no limit; `created` in seconds since the epoch."""

    id: str
    tenant: str
    name: str
    created: float
    requests_per_minute: int = 0


class ApiKeys:
    """Raises JobStoreUnavailable. Safe to share between threads."""

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client

    def create(self, tenant: str, name: str, requests_per_minute: int = 0) -> tuple[ApiKey, str]:
        """A new key and its secret, which is told now and never again. Raises OptionError."""
        try:
            check_tenant(tenant)
        except ValueError as error:
            raise OptionError(str(error), "tenant") from None
        if requests_per_minute < 0:
            raise OptionError(f"requests_per_minute is {requests_per_minute}, but must be at least 0")
        secret = KEY_PREFIX + secrets.token_urlsafe(32)
        key = ApiKey(secrets.token_hex(4), tenant, name, time.time(), requests_per_minute)
        with job_store_errors(self._client):
            self._client.hset(_KEYS, _digest(secret), json.dumps(dataclasses.asdict(key)))
        return key, secret

    def all(self) -> list[ApiKey]:
        """All keys, the oldest first."""
        return sorted(self._records().values(), key=lambda key: key.created)

    def revoke(self, key_id: str) -> ApiKey:
        """Makes a key worthless from now on. Raises OptionError when there is none of that id."""
        for digest, key in self._records().items():
            if key.id == key_id:
                with job_store_errors(self._client):
                    self._client.hdel(_KEYS, digest)
                return key
        raise OptionError(f"there is no API key {key_id[:80]!r}", "id")

    def find(self, secret: str) -> ApiKey | None:
        """The key of a secret, None if there is none."""
        if not secret.startswith(KEY_PREFIX) or len(secret) > _MAX_SECRET:
            return None
        with job_store_errors(self._client):
            record = self._client.hget(_KEYS, _digest(secret))
        return None if record is None else _decode(record)

    def wait(self, key: ApiKey, now: float | None = None) -> int:
        """Counts a request; how many seconds it comes too early for the key's rate, 0 if it does not.

        `now` in seconds since the epoch. A rate counts by the minutes of the clock.
        """
        if not key.requests_per_minute:
            return 0
        with job_store_errors(self._client), self._client.pipeline(transaction=True) as pipe:
            now = time.time() if now is None else now
            counter = f"{_RATE}:{key.id}:{int(now // _MINUTE)}"
            pipe.incr(counter)
            pipe.expire(counter, 2 * _MINUTE)
            count = pipe.execute()[0]
        return int(_MINUTE - now % _MINUTE) + 1 if count > key.requests_per_minute else 0

    def _records(self) -> dict[bytes, ApiKey]:
        with job_store_errors(self._client):
            found: dict[bytes, bytes] = self._client.hgetall(_KEYS)
        return {digest: _decode(record) for digest, record in found.items()}


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _decode(record: bytes) -> ApiKey:
    return ApiKey(**json.loads(record))
