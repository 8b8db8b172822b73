"""Ingest: a stored document becomes stored token ids, and a job learns how much of it was read before."""

from __future__ import annotations

import hashlib
import logging
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cache_store.documents import read_document
from cache_store.manifest import Manifest
from cache_store.naming import Plan, next_name, plan_name, tokens_name
from cache_store.store import CacheStore
from cache_store.tokens import TOKEN_BYTES, read_tokens, token_count, write_tokens
from kernel_worker.calls import Call
from kernel_worker.errors import InvalidRequest
from kernel_worker.model import LoadedModel
from kernel_worker.stages.desk import Desk, invalid_arguments

log = logging.getLogger(__name__)

LOOK_UP = 256  # states asked for in one round trip
READ_TOKENS = 1 << 16


@dataclass(frozen=True, slots=True)
class Ingested:
    """Where to go on: `done_segments` of `segments` are covered by `state`; see IngestResponse."""

    tokens: str
    token_count: int
    segments: int
    done_segments: int
    state: str
    positions: str


def ingest(desk: Desk, call: Call, tenant: str, document: str, plan: Plan, *, auto: bool) -> Ingested:
    """Tokenizes the document unless that was done, and finds the furthest stored state of the plan.

    With `auto` the plan's positions are chosen here: original ones where the document leaves a quarter of
    the model's window free, else dense ones. Nothing held grows with the document but 32 bytes a segment.

    Raises InvalidRequest for a blank document and for a plan that can never work, StateMismatch for another
    model's plan, ObjectMissing and ObjectDamaged for the document, BudgetExceeded, CallerGone.
    """
    store = desk.store(tenant)
    # What can be refused is refused before the work.
    policy = desk.policy(replace(plan, positions="original") if auto else plan)
    room = desk.room_after(policy, plan)

    def work() -> Ingested:
        manifest = _tokens(desk, call, store, document)
        count = token_count(manifest)
        chosen = _positioned(desk, plan, count, room, auto)
        desk.policy(chosen)
        done, state = _furthest(store, call, manifest, chosen)
        segments = -(-count // chosen.segment_tokens)
        log.info("Ingest: %d tokens, %d of %d segments are known.", count, done, segments)
        return Ingested(manifest.name, count, segments, done, state, chosen.positions)

    return desk.readers.run(call, work)


def _positioned(desk: Desk, plan: Plan, count: int, room: int, auto: bool) -> Plan:
    """The plan with positions that suit a document of `count` tokens and `room` more."""
    window = desk.loaded.window
    if auto:
        fits = count + max(room, window // 4) <= window
        return replace(plan, positions="original" if fits else "dense")
    if plan.positions == "original":
        desk.engine.check_window(0, room, positions="original", seen=count)
    return plan


def _tokens(desk: Desk, call: Call, store: CacheStore, document: str) -> Manifest:
    """The stored ids of prefix and document."""
    with invalid_arguments():
        name = tokens_name(document, _reading(desk.loaded))
    if store.exists("tokens", [name])[0]:
        return store.manifest("tokens", name)
    size = store.manifest("document", document).size
    # No tokenizer in use makes more ids than twice the bytes of a text; what is not needed is given back.
    most = len(desk.loaded.prompt.prefix_ids) + 2 * size
    return write_tokens(store, name, _encoded(desk.loaded, call, store, document), max_count=most)


def _reading(loaded: LoadedModel) -> str:
    """What decides the ids of a document: the tokenizer, and the words in front of every document."""
    prefix = array("I", loaded.prompt.prefix_ids)
    return hashlib.sha256(loaded.tokenizer_fingerprint.encode() + little_endian(prefix)).hexdigest()


def _encoded(loaded: LoadedModel, call: Call, store: CacheStore, document: str) -> Iterator[bytes]:
    yield little_endian(array("I", loaded.prompt.prefix_ids))
    blank = True

    def chunks() -> Iterator[str]:
        nonlocal blank
        for chunk in read_document(store, document):
            blank = blank and (not chunk or chunk.isspace())
            yield chunk

    for piece in loaded.tokenizer.encode_document(chunks()):
        call.check()
        yield little_endian(piece.ids)
    if blank:
        raise InvalidRequest("The document holds no text.")


def little_endian(ids: array[int]) -> bytes:
    """The ids (typecode I) as the store keeps them."""
    if sys.byteorder == "big":
        ids = array("I", ids)
        ids.byteswap()
    return ids.tobytes()


def _furthest(store: CacheStore, call: Call, manifest: Manifest, plan: Plan) -> tuple[int, str]:
    """(segments covered, name) of the furthest stored state; (0, empty state) when there is none."""
    name = plan_name(plan)
    chain = bytearray.fromhex(name)
    for segment in _segments(store, manifest, plan.segment_tokens):
        call.check()
        name = next_name(name, segment)
        chain += bytes.fromhex(name)
    size = hashlib.sha256().digest_size
    for stop in range(len(chain) // size, 1, -LOOK_UP):
        indices = range(max(1, stop - LOOK_UP), stop)
        names = [chain[index * size : (index + 1) * size].hex() for index in indices]
        stored = store.exists("state", names)
        if any(stored):
            last = max(place for place, found in enumerate(stored) if found)
            return indices[last], names[last]
    return 0, plan_name(plan)


def _segments(store: CacheStore, manifest: Manifest, segment_tokens: int) -> Iterator[bytes]:
    """Ids of each segment, read some 64 thousand tokens at a time."""
    count, step = token_count(manifest), max(1, READ_TOKENS // segment_tokens) * segment_tokens
    for start in range(0, count, step):
        ids = read_tokens(store, manifest.name, start, min(start + step, count), manifest)
        for first in range(0, len(ids), segment_tokens * TOKEN_BYTES):
            yield ids[first : first + segment_tokens * TOKEN_BYTES]
