"""The model side of a worker: segments in, entries out; a state in, tokens out. Knows no service and no store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from kernel_worker.model import LoadedModel
from kernel_worker.sampling import Sampling
from kernels.selection.policy import CompressedKV, SelectionPolicy
from kernels.weighted_kv import WeightedKV

Positions = Literal["dense", "original"]
FOLD_EVERY = 64


@dataclass(frozen=True, slots=True)
class DecodeCheckpoint:
    """Where a decode can go on: the state after a fold, and every token id chosen so far (at least one).

    The state has taken up the prompt and all of `ids` but the last, which the model has not seen yet.
    """

    state: CompressedKV
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """One token, or the end.

    index       0-based number of the token; in the last step the number of tokens written
    token       the chosen id; None in the last step alone
    checkpoint  given with the first token and after every fold; ids end with this step's token
    finish      None, and in the last step "stop" (the model ended its turn) or "length"
    """

    index: int
    token: int | None
    checkpoint: DecodeCheckpoint | None = None
    finish: Literal["stop", "length"] | None = None


class Engine:
    """One model on one device. Stateless between calls, and safe to call from several threads."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded

    def empty_state(self) -> CompressedKV:
        """The state before the first token: rows (layers, kv_heads), no entries, nothing seen."""
        raise NotImplementedError

    def check_window(self, entries: int, new_tokens: int, *, positions: Positions, seen: int = 0) -> None:
        """Raises WindowExceeded when a state of `entries` entries and `new_tokens` further tokens need more
        positions than the model was trained with; with original positions `seen` counts instead of `entries`.
        """
        raise NotImplementedError

    def prefill(
        self,
        policy: SelectionPolicy,
        state: CompressedKV,
        ids: Sequence[int],
        *,
        positions: Positions,
        on_layer: Callable[[int], None] | None = None,
    ) -> WeightedKV:
        """Runs the model over one segment that follows on `state`, which is not changed.

        Attention is exact and causal inside the segment and weighted (`policy.log_weights`) to the state.
        Returns the segment's entries [layers, kv_heads, len(ids), head_dim], not rotated, weight 1, in the
        model's dtype, tokens state.seen and following: what `policy.fold(state, ...)` takes.

        on_layer(n) is called after n layers are done; what it raises ends the call and passes through.

        Raises InvalidRequest for no ids or an id outside the vocabulary, WindowExceeded, StateMismatch.
        """
        raise NotImplementedError

    def decode(
        self,
        policy: SelectionPolicy,
        state: CompressedKV,
        prompt_ids: Sequence[int],
        *,
        positions: Positions,
        sampling: Sampling,
        checkpoint: DecodeCheckpoint | None = None,
        fold_every: int = FOLD_EVERY,
    ) -> Iterator[DecodeStep]:
        """Writes tokens after `state` and the prompt (instruction and template end), one step each.

        The prompt is run like a segment and folded in; generated tokens wait exactly and are folded in
        whenever `fold_every` of them wait, which gives a checkpoint. With a checkpoint of the same decode
        `state` and `prompt_ids` are not read, the tokens of `checkpoint.ids` are not repeated, and the
        steps that follow are bit for bit those of the undisturbed decode.

        Closing the iterator ends the work. Raises InvalidRequest, WindowExceeded, StateMismatch at the call,
        not at the first step.
        """
        raise NotImplementedError
