"""The one interface of all policies: how a bounded cache takes up new tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from kernels.selection.observation import Observation, Probe
from kernels.weighted_kv import WeightedKV


@dataclass(frozen=True, slots=True)
class CompressedKV:
    """A cache after `seen` tokens. How its entries are laid out is the business of its policy.

    scores [*rows, C] float32: what each entry was worth so far, for policies that remember it; else None.
    """

    entries: WeightedKV
    seen: int
    scores: Tensor | None = None

    def __post_init__(self) -> None:
        if self.scores is not None and self.scores.shape != self.entries.weights.shape:
            raise ValueError(
                f"scores has shape {tuple(self.scores.shape)}; the entries allow"
                f" {tuple(self.entries.weights.shape)}"
            )


class SelectionPolicy(ABC):
    """Folds segment after segment into a bounded set of entries.

    A policy is a pure function of its parameters: `fold` keeps no state between calls, never changes
    its arguments, and draws every random number from (seed, position in the stream), so that the same
    tokens give the same bytes, in whatever process and however often.
    """

    name: ClassVar[str]

    @property
    def probe(self) -> Probe | None:
        """What `fold` wants to observe; None for a policy that looks at the entries alone."""
        return None

    @property
    @abstractmethod
    def entries(self) -> int:
        """The most entries per row that `fold` ever returns."""

    @property
    @abstractmethod
    def parameters(self) -> dict[str, str | int | float]:
        """Everything that decides the result of `fold`, seed included; it becomes part of a state's name."""

    @abstractmethod
    def fold(
        self, cache: CompressedKV, segment: WeightedKV, observed: Observation | None = None
    ) -> CompressedKV:
        """The cache after `segment`, whose tokens follow directly on `cache.seen` and have weight 1.

        observed  queries over the entries of both; a policy without a `probe` does not read it, the others
                  take the new tokens' scores from it

        Raises ValueError where rows, head sizes or dtypes of the two differ, or the observation is missing.
        """

    def log_weights(self, entries: WeightedKV) -> Tensor:
        """What attention adds to the logits of the entries, [*rows, C] float32: log w, unless tempered."""
        return entries.weights.log()


def check_segment(cache: CompressedKV, segment: WeightedKV) -> None:
    """ValueError where `segment` cannot follow on `cache`. Reads no element."""
    for name in ("keys", "values"):
        mine, theirs = getattr(cache.entries, name), getattr(segment, name)
        shape = (*mine.shape[:-2], len(segment), mine.shape[-1])
        if theirs.shape != shape or theirs.dtype != mine.dtype or theirs.device != mine.device:
            raise ValueError(
                f"segment has {name} {tuple(theirs.shape)} {theirs.dtype} on {theirs.device};"
                f" the cache allows {shape} {mine.dtype} on {mine.device}"
            )
