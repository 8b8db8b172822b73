"""From logits to one token id: a pure function of logits, ids so far, and (seed, index)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernel_worker.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen and when to stop.

    temperature 0 is greedy; top_p 1 and repetition_penalty 1 are off. The penalty (Keskar et al.,
    arXiv 1909.05858, section 4.1) counts generated tokens alone: names from the document stay unpunished.

    Raises InvalidRequest for a value outside its range.
    """

    max_new_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        _require("max_new_tokens", self.max_new_tokens, self.max_new_tokens >= 1, "at least 1")
        _require("temperature", self.temperature, 0 <= self.temperature < math.inf, "0 (greedy) or more")
        _require("top_p", self.top_p, 0 < self.top_p <= 1, "more than 0 and at most 1")
        _require(
            "repetition_penalty", self.repetition_penalty, 0 < self.repetition_penalty < math.inf, "positive"
        )
        _require("seed", self.seed, 0 <= self.seed < 2**64, "0 to 2**64 - 1")


def choose(logits: Tensor, ids: Sequence[int], sampling: Sampling) -> int:
    """The next token id.

    logits [vocabulary], any floating dtype; ids are the tokens generated so far, and their number is the
    counter of the random draw, so that a resumed decode draws what the undisturbed one would have drawn.
    """
    scores = logits.float()
    if sampling.repetition_penalty != 1.0 and ids:
        scores = _penalized(scores, ids, sampling.repetition_penalty)
    if sampling.temperature == 0:
        return int(scores.argmax())
    probabilities, order = torch.softmax(scores.double() / sampling.temperature, dim=-1).sort(
        descending=True, stable=True
    )
    cumulative = probabilities.cumsum(-1)
    # The first token is always a candidate: what lies before it is 0, less than any allowed top_p.
    candidates = int((cumulative - probabilities < sampling.top_p).sum())
    point = uniform(sampling.seed, len(ids)) * float(cumulative[candidates - 1])
    place = int(torch.searchsorted(cumulative[:candidates], point, right=True))
    return int(order[min(place, candidates - 1)])


def uniform(seed: int, index: int) -> float:
    """A number in [0, 1) that depends on (seed, index) alone: the same in every process, on every device."""
    digest = hashlib.sha256(seed.to_bytes(8, "little") + index.to_bytes(8, "little")).digest()
    return (int.from_bytes(digest[:8], "little") >> 11) / 2**53


def _penalized(scores: Tensor, ids: Sequence[int], penalty: float) -> Tensor:
    index = torch.tensor(sorted(set(ids)), device=scores.device)
    chosen = scores[index]
    return scores.index_copy(0, index, torch.where(chosen < 0, chosen * penalty, chosen / penalty))


def _require(name: str, value: float, valid: bool, allowed: str) -> None:
    if not valid:
        raise InvalidRequest(f"{name} is {value}, but must be {allowed}.")
