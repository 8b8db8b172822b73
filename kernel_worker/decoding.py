"""One text on its way: where it stands, which token comes next, when new tokens are folded, how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from kernel_worker.cache import Positions, SegmentCache
from kernel_worker.model import LoadedModel
from kernel_worker.observed import Observed, stacked
from kernel_worker.sampling import Sampling, choose
from kernel_worker.token_cache import TokenRow
from kernels.selection.policy import CompressedKV, SelectionPolicy
from kernels.weighted_kv import WeightedKV, concat


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
    checkpoint  given with the first token and after every fold; its ids end with this step's token
    finish      None, and in the last step "stop" (the model ended its turn) or "length"
    """

    index: int
    token: int | None
    checkpoint: DecodeCheckpoint | None = None
    finish: Literal["stop", "length"] | None = None


class Decoding:
    """A decode after its prompt. `Batch` steps it; it holds one row there between two folds."""

    def __init__(
        self,
        loaded: LoadedModel,
        policy: SelectionPolicy,
        checkpoint: DecodeCheckpoint,
        *,
        positions: Positions,
        sampling: Sampling,
        fold_every: int,
    ) -> None:
        self._loaded, self._policy = loaded, policy
        self._positions, self._sampling, self._fold_every = positions, sampling, fold_every
        self._state, self._ids = checkpoint.state, list(checkpoint.ids)
        self.row: TokenRow | None = None

    @property
    def last(self) -> int:
        """The id that the model has not seen yet."""
        return self._ids[-1]

    def end(self) -> DecodeStep | None:
        """The last step, where no further token may be written."""
        read = self._state.seen if self.row is None else self.row.read
        full = self._positions == "original" and read >= self._loaded.window
        if full or len(self._ids) >= self._sampling.max_new_tokens:
            return DecodeStep(len(self._ids), None, finish="length")
        return None

    def seat(self) -> TokenRow:
        """The row for the next tokens, made where there is none."""
        if self.row is None:
            weights = self._policy.log_weights(self._state.entries)
            rotary, room = self._loaded.rotary, self._fold_every
            self.row = TokenRow(self._state, weights, rotary, self._positions, room)
            self.row.queries = None if self._policy.probe is None else []
        return self.row

    def choose(self, logits: Tensor) -> int:
        """The next id from logits [vocabulary]."""
        return choose(logits, self._ids, self._sampling)

    def take(self, token: int) -> DecodeStep:
        """Goes on with the chosen token, after the row has taken up the one before it; folds a full row.

        The caller takes a row out of its table that is no longer `self.row` after this.
        """
        if token in self._loaded.prompt.stop_ids:
            return DecodeStep(len(self._ids), None, finish="stop")
        self._ids.append(token)
        checkpoint = None
        if self.row is not None and self.row.length == self._fold_every:
            row, self.row = self.row, None
            self._state = folded(self._loaded, self._policy, row, row.new_entries())
            checkpoint = DecodeCheckpoint(self._state, tuple(self._ids))
        return DecodeStep(len(self._ids) - 1, token, checkpoint)


def folded(
    loaded: LoadedModel, policy: SelectionPolicy, cache: SegmentCache | TokenRow, new: WeightedKV
) -> CompressedKV:
    """The state after a cache's new tokens, whose own queries are what the policy observes."""
    observed = observation(loaded, cache, concat([cache.state.entries, new]), len(new))
    return policy.fold(cache.state, new, observed)


def observation(
    loaded: LoadedModel, cache: SegmentCache | TokenRow, known: WeightedKV, own: int
) -> Observed | None:
    """The recorded queries of a cache's new tokens; None where nothing was recorded."""
    if not cache.queries or cache.scale is None:
        return None
    raw = stacked(cache.queries, loaded.layers)
    return Observed(known, raw, cache.first, loaded.rotary, cache.positions, cache.scale, own)
