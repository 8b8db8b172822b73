"""Evidence: which parts of a document a state still holds, and with what weight. The model is not run."""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from cache_store.documents import read_document
from cache_store.naming import Plan
from cache_store.states import read_weights
from cache_store.store import CacheStore
from cache_store.tokens import token_count
from kernel_worker.calls import Call
from kernel_worker.errors import InvalidRequest
from kernel_worker.stages.desk import Desk, Places, invalid_arguments

log = logging.getLogger(__name__)

MAX_BINS = 4096


@dataclass(frozen=True, slots=True)
class EvidenceRequest:
    """`state` has read all of the document; `bins` is the most parts wanted, at most MAX_BINS."""

    tenant: str
    plan: Plan
    document: str
    tokens: str
    state: str
    bins: int


@dataclass(frozen=True, slots=True)
class Bin:
    """Characters [start, end) of the document; weight and entries are means over all layers and KV heads."""

    start: int
    end: int
    tokens: int
    weight: float
    entries: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """Parts of equally many tokens (the last one of fewer), in order; `seconds` of work."""

    bins: tuple[Bin, ...]
    seconds: float


def evidence(desk: Desk, call: Call, request: EvidenceRequest) -> Evidence:
    """What the state holds of each part of the document. What is held at a time does not grow with it.

    The text is encoded anew to find the parts' places, unless that was done lately for so many parts.

    Raises InvalidRequest, StateMismatch for another model's plan, ObjectMissing and ObjectDamaged for state,
    document or tokens, FormatMismatch for another plan's state, CallerGone; what `ComputeSlots.run` raises.
    """
    desk.policy(request.plan)
    if not 1 <= request.bins <= MAX_BINS:
        raise InvalidRequest(f"bins is {request.bins}; allowed are 1 to {MAX_BINS}.")
    return desk.readers.run(call, lambda: _evidence(desk, call, request))


def _evidence(desk: Desk, call: Call, request: EvidenceRequest) -> Evidence:
    started, store = time.perf_counter(), desk.store(request.tenant)
    with invalid_arguments():
        stored = token_count(store.manifest("tokens", request.tokens))
        chunks = read_document(store, request.document)
    prefix = len(desk.loaded.prompt.prefix_ids)
    count = stored - prefix
    size = -(-count // request.bins)
    kept = _kept(store, call, request, stored, prefix, size)
    key = (request.tenant, request.document, size)
    found = desk.places.get(key, lambda: places(desk, call, chunks, size))
    if found.tokens != count:
        raise InvalidRequest(f"The tokens {request.tokens} are not those of document {request.document}.")
    ends = [*found.starts[1:], found.end]
    sizes = [min(size, count - first) for first in range(0, count, size)]
    bins = tuple(map(Bin, found.starts, ends, sizes, *kept.tolist()))
    seconds = time.perf_counter() - started
    log.info("Evidence: %d parts of %d tokens in %.2f s.", len(bins), count, seconds)
    return Evidence(bins, seconds)


def _kept(
    store: CacheStore, call: Call, request: EvidenceRequest, seen: int, prefix: int, size: int
) -> Tensor:
    """Weights and entries of each part, float64 [2, parts]; those of the template in front are left out."""
    with invalid_arguments():
        meta, parts = read_weights(store, request.state, request.plan)
    if meta.seen != seen:
        raise InvalidRequest(f"The state {request.state} ends after {meta.seen} of {seen} tokens.")
    number = -(-(seen - prefix) // size)
    sums = torch.zeros(2, number, dtype=torch.float64)
    for tokens, weights in parts:
        call.check()
        own = tokens >= prefix
        places = (tokens[own] - prefix) // size
        sums[0].index_add_(0, places, weights[own].double())
        sums[1] += torch.bincount(places, minlength=number)
    return sums / (meta.shape.layers * meta.shape.kv_heads)


def places(desk: Desk, call: Call, chunks: Iterable[str], size: int) -> Places:
    """Where each part of `size` tokens starts. Raises CallerGone."""
    starts = array("Q")
    tokens = at = 0
    for piece, spans in desk.loaded.tokenizer.located(chunks):
        call.check()
        for place in range(-tokens % size, len(spans), size):
            starts.append(at + spans[place][0])
        tokens += len(spans)
        at += len(piece)
    starts[:1] = array("Q", [0])  # blanks that no token stands for belong to what follows
    return Places(starts, tokens, at)
