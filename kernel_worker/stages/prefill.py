"""Prefill: the model reads one segment, whose new KV then waits here, under a lease, to be compressed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kernel_worker.calls import Call
from kernel_worker.stages.desk import Desk, positions_of
from kernel_worker.stages.segments import Segment, SegmentRequest, find_segment, load_parent

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    layers_done: int
    layers: int


@dataclass(frozen=True, slots=True)
class Prefilled:
    lease: str
    tokens: int
    seconds: float


PrefillEvent = Progress | Prefilled
Emit = Callable[[PrefillEvent], None]


def prefill(desk: Desk, call: Call, request: SegmentRequest) -> Iterator[PrefillEvent]:
    """Progress after each layer, then the lease. Ends within a layer when the caller goes away.

    A segment that is held here already is not read again: its lease is handed out once more.
    Raises what `find_segment`, `load_parent` and `ComputeSlots.stream` raise; BudgetExceeded where the
    result of the work could not be stored; WorkerBusy where too many segments are held.
    """
    segment = find_segment(desk, request)
    return desk.slots.stream(call, lambda emit: _read(desk, call, segment, emit))


def _read(desk: Desk, call: Call, segment: Segment, emit: Emit) -> None:
    started, layers = time.perf_counter(), desk.loaded.layers
    held = desk.leases.find(segment.lease_key)
    if held is not None:
        emit(Prefilled(held, len(segment.ids), time.perf_counter() - started))
        return
    entries = min(segment.start + len(segment.ids), segment.policy.entries)
    segment.store.check_room(desk.shape(entries).size_bound())
    lease = desk.leases.reserve(segment.lease_key, desk.loaded.bytes_per_token * len(segment.ids))

    def on_layer(done: int) -> None:
        desk.between_layers(call)
        emit(Progress(done, layers))

    try:
        call.check()
        desk.leases.fill(
            lease,
            desk.engine.read(
                segment.policy,
                load_parent(desk, segment),
                segment.ids,
                positions=positions_of(segment.request.plan),
                on_layer=on_layer,
            ),
        )
    except BaseException:
        desk.leases.release(lease)
        raise
    seconds = time.perf_counter() - started
    log.info("Prefill of segment %d: %d tokens in %.2f s.", segment.request.index, len(segment.ids), seconds)
    emit(Prefilled(lease, len(segment.ids), seconds))
