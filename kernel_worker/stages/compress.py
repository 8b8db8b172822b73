"""Compress: a leased segment is folded into the state before it, and the result is stored."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import torch

from cache_store.manifest import Manifest
from cache_store.states import read_meta, save_state
from kernel_worker.calls import Call
from kernel_worker.estimate import ReadSegment, accumulated, fold_errors
from kernel_worker.stages.desk import Desk, invalid_arguments, positions_of
from kernel_worker.stages.segments import Segment, SegmentRequest, find_segment, load_parent

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Compressed:
    """The new state; `cache_entries` per KV head and layer, `seconds` of work."""

    state: str
    cache_entries: int
    state_bytes: int
    tokens_seen: int
    seconds: float


def compress(desk: Desk, call: Call, request: SegmentRequest, lease: str) -> Compressed:
    """Stores the state after the segment and frees the lease; a second time it only answers the same.

    While the worker drains this is still served, so that a segment that was read is not lost.
    Raises LeaseLost, and what `find_segment`, `load_parent`, `ComputeSlots.run` and `save_state` raise.
    """
    segment = find_segment(desk, request)
    started = time.perf_counter()
    manifest = _stored(segment)
    if manifest is None:
        # Taken now, so that it cannot expire while the call waits for its turn.
        new = desk.leases.take(lease, segment.lease_key)
        manifest, started = desk.slots.run(call, lambda: _fold(desk, segment, new), finishing=True)
    answer = _answer(segment, manifest, time.perf_counter() - started)
    desk.leases.release(lease)
    return answer


def _fold(desk: Desk, segment: Segment, new: ReadSegment) -> tuple[Manifest, float]:
    """The manifest of the new state, and when the work began."""
    started = time.perf_counter()
    manifest = _stored(segment)
    if manifest is None:
        parent, policy = load_parent(desk, segment), segment.policy
        positions = positions_of(segment.request.plan)
        # A policy may refuse what it would have to hold: its own sentence tells.
        with torch.inference_mode(), invalid_arguments():
            observed = desk.engine.observe(policy, parent, new.entries, segment.ids, positions=positions)
            state = policy.fold(parent, new.entries, observed)
            errors = fold_errors(policy, parent, new, state, desk.loaded.rotary, positions)
        request = segment.request
        manifest = save_state(
            segment.store,
            segment.child,
            state,
            request.plan,
            request.parent,
            error_by_layer=accumulated(_errors_before(desk, segment), errors),
        )
        seconds = time.perf_counter() - started
        log.info("Compress of segment %d: %.12s in %.2f s.", request.index, segment.child, seconds)
        desk.hot.put(request.tenant, segment.child, state)
        desk.hot.discard(request.tenant, request.parent)
    return manifest, started


def _errors_before(desk: Desk, segment: Segment) -> tuple[float, ...] | None:
    """The figure of the parent; None where it was stored without one."""
    request = segment.request
    if request.index == 0:
        return (0.0,) * desk.loaded.layers
    return read_meta(segment.store, segment.store.manifest("state", request.parent)).error_by_layer


def _stored(segment: Segment) -> Manifest | None:
    if not segment.store.exists("state", [segment.child])[0]:
        return None
    return segment.store.manifest("state", segment.child)


def _answer(segment: Segment, manifest: Manifest, seconds: float) -> Compressed:
    meta = read_meta(segment.store, manifest)
    return Compressed(segment.child, meta.shape.entries, manifest.size, meta.seen, seconds)
