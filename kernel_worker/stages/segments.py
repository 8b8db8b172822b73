"""One segment of a document: its tokens, the state before it, and the name of the state after it."""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass

from cache_store.naming import Plan, next_name, plan_name
from cache_store.store import CacheStore
from cache_store.tokens import read_tokens, token_count
from kernel_worker.errors import InvalidRequest
from kernel_worker.leases import LeaseKey
from kernel_worker.stages.desk import Desk, invalid_arguments
from kernels.selection import CompressedKV, SelectionPolicy


@dataclass(frozen=True, slots=True)
class SegmentRequest:
    """What a call says of a segment; `index` from 0, `parent` is the name of the state before it."""

    tenant: str
    plan: Plan
    tokens: str
    index: int
    parent: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment that was found; its token ids are a few thousand, whatever the document's length."""

    request: SegmentRequest
    store: CacheStore
    policy: SelectionPolicy
    start: int
    ids: tuple[int, ...]
    child: str

    @property
    def lease_key(self) -> LeaseKey:
        return LeaseKey(self.request.tenant, self.child)


def find_segment(desk: Desk, request: SegmentRequest) -> Segment:
    """The segment of a request, its range of the tokens alone read from the store.

    Raises InvalidRequest for a segment or parent that does not fit the plan, and what `Desk.policy` and
    reading the tokens raise.
    """
    plan = request.plan
    store, policy = desk.store(request.tenant), desk.policy(plan)
    if (request.index == 0) != (request.parent == plan_name(plan)):
        raise InvalidRequest(
            f"The state {request.parent[:64]!r} does not come before segment {request.index}."
        )
    with invalid_arguments():
        manifest = store.manifest("tokens", request.tokens)
    start, count = request.index * plan.segment_tokens, token_count(manifest)
    if start >= count:
        raise InvalidRequest(
            f"There is no segment {request.index}: the document has {-(-count // plan.segment_tokens)}."
        )
    data = read_tokens(store, request.tokens, start, min(start + plan.segment_tokens, count), manifest)
    with invalid_arguments():
        child = next_name(request.parent, data)
    return Segment(request, store, policy, start, ids_of(data), child)


def load_parent(desk: Desk, segment: Segment) -> CompressedKV:
    """The state before the segment. Raises InvalidRequest where it ends elsewhere, and what
    `Desk.state` raises.
    """
    request = segment.request
    parent = desk.state(segment.store, request.plan, request.parent)
    if parent.seen != segment.start:
        raise InvalidRequest(
            f"The state {request.parent} ends after {parent.seen} tokens, but segment {request.index} begins"
            f" at {segment.start}."
        )
    return parent


def ids_of(data: bytes) -> tuple[int, ...]:
    """Token ids from the bytes in which the store keeps them."""
    ids = array("I", data)
    if sys.byteorder == "big":
        ids.byteswap()
    return tuple(ids)
