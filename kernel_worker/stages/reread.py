"""Reading again: passages of a stored document, exactly and inside the window, in place of its state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from cache_store.store import CacheStore
from cache_store.tokens import read_tokens, token_count
from kernel_worker.calls import Call
from kernel_worker.errors import InvalidRequest
from kernel_worker.model import LoadedModel
from kernel_worker.stages.desk import Desk, invalid_arguments
from kernel_worker.stages.segments import ids_of
from kernels.selection import CompressedKV, SelectionPolicy, make_policy

log = logging.getLogger(__name__)

GAP = "\n\n...\n\n"
"""Read between two passages: what follows does not go on where the text before it ended."""


@dataclass(frozen=True, slots=True)
class Span:
    """`count` token ids from `first` on, in a document's stored ids."""

    first: int
    count: int

    @property
    def stop(self) -> int:
        return self.first + self.count


def gap_ids(loaded: LoadedModel) -> list[int]:
    """Ids that stand between two passages."""
    return loaded.tokenizer.encode(GAP)


def exact_policy(desk: Desk) -> SelectionPolicy:
    """Keeps everything that the window holds."""
    return make_policy("exact", entries=desk.loaded.window, seed=0)


def passage_ids(
    desk: Desk, store: CacheStore, tokens: str, spans: Sequence[Span], prompt: int
) -> tuple[int, ...]:
    """Ids to read: the template's opening, and the passages with a gap between those that lie apart.

    prompt  tokens that have to fit in behind them, besides one to write

    Raises InvalidRequest for spans that are none of the document, out of order, or more than the window
    holds; what `read_tokens` raises.
    """
    opening, gap = desk.loaded.prompt.prefix_ids, gap_ids(desk.loaded)
    with invalid_arguments():
        manifest = store.manifest("tokens", tokens)
    _check(spans, len(opening), token_count(manifest))
    needed = len(opening) + sum(span.count for span in spans) + (len(spans) - 1) * len(gap) + prompt
    desk.engine.check_window(0, 1, positions="original", seen=needed)
    ids = list(opening)
    for place, span in enumerate(spans):
        if place and spans[place - 1].stop < span.first:
            ids += gap
        ids += ids_of(read_tokens(store, tokens, span.first, span.stop, manifest))
    return tuple(ids)


def read_again(
    desk: Desk, call: Call, ids: Sequence[int], piece: int, progress: Callable[[int, int], None]
) -> CompressedKV:
    """The exact state after `ids`, read `piece` of them at a time; `progress(done, of)` in tokens.

    Raises CallerGone within a layer.
    """
    engine, policy = desk.engine, exact_policy(desk)
    state, layers = engine.empty_state(), desk.loaded.layers
    for start in range(0, len(ids), piece):
        part = ids[start : start + piece]

        def on_layer(done: int, start: int = start, count: int = len(part)) -> None:
            desk.between_layers(call)
            progress(start + count * done // layers, len(ids))

        segment = engine.read(policy, state, part, positions="original", on_layer=on_layer)
        with torch.inference_mode():
            state = policy.fold(state, segment.entries)
    log.info("Reread: %d tokens.", len(ids))
    return state


def _check(spans: Sequence[Span], first: int, count: int) -> None:
    end = first
    for span in spans:
        if span.count < 1 or span.first < end or span.stop > count:
            raise InvalidRequest(
                f"There is no passage of {span.count} tokens from {span.first} on: passages come in order,"
                f" and the document's tokens are {first} to {count - 1}."
            )
        end = span.stop
