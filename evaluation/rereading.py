"""Reading again: pieces are ranked for a question by their sketches or by its words; the best are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import bm25s
import torch

from evaluation.bench import Bench
from evaluation.methods import SEED, Answer, Method, Work, read_exactly
from kernel_worker.ranking import question_likelihoods
from kernels.selection import make_policy
from kernels.sketch import sketch
from kernels.weighted_kv import WeightedKV

Ranking = Literal["likelihood", "words", "both"]
_SMOOTH = 5.0  # of reciprocal ranks: how much a first place counts above a second one


def by_words(texts: Sequence[str], question: str) -> list[float]:
    """BM25 of the question for each text (Robertson and Zaragoza, 2009), by the library bm25s."""
    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(texts), show_progress=False), show_progress=False)
    words = bm25s.tokenize(question, show_progress=False, return_ids=False)[0]
    return [float(score) for score in index.get_scores(words)]


def both(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Sum of reciprocal ranks (Cormack, Clarke, Büttcher, SIGIR 2009); equal scores share the better rank."""

    def places(scores: Sequence[float]) -> list[int]:
        return [sum(score > mine for score in scores) + 1 for mine in scores]

    return [1 / (_SMOOTH + a) + 1 / (_SMOOTH + b) for a, b in zip(places(one), places(other), strict=True)]


def best(scores: Sequence[float], count: int) -> list[int]:
    """The `count` best places, the best one first."""
    return sorted(range(len(scores)), key=lambda place: -scores[place])[:count]


@dataclass(frozen=True)
class Reread(Method):
    """Cuts the document into pieces, ranks them for the question, and reads the best ones exactly.

    ranking        by the question's words (BM25), by its likelihood over a sketch of each piece, or by both
    pieces         read
    best_last      whether the best piece stands next to the question; else in the order of the document
    unit           tokens of a piece; sketches are of segments, whatever the unit
    entries        of a sketch
    state_entries  of the state that the segments follow on while their sketches are made
    """

    ranking: Ranking = "words"
    pieces: int = 3
    unit: int = 1024
    best_last: bool = False
    entries: int = 128
    state_entries: int = 1024
    budgeted: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        sketched = "" if self.ranking == "words" else f", sketches of {self.entries}"
        last = ", best last" if self.best_last else ""
        return f"read again by {self.ranking}{sketched}, {self.pieces} of {self.unit}{last}"

    def suits(self, bench: Bench, work: Work) -> bool:
        whole = self.ranking == "words" or self.unit == bench.segment_tokens
        return bool(work.question) and whole and len(work.ids) > bench.segment_tokens

    def answer(self, bench: Bench, work: Work) -> Answer:
        opening = bench.engine.loaded.prompt.prefix_ids
        body = work.ids[len(opening) :]
        parts = [body[start : start + self.unit] for start in range(0, len(body), self.unit)]
        scores = self._scores(bench, work, parts)
        chosen = best(scores, self.pieces)
        chosen = chosen[::-1] if self.best_last else sorted(chosen)
        answer = read_exactly(bench, [*opening, *(token for place in chosen for token in parts[place])], work)
        if work.evidence is None:
            return answer
        holding = (work.evidence[0] - len(opening)) // self.unit
        return replace(answer, rank=best(scores, len(scores)).index(holding) + 1)

    def _scores(self, bench: Bench, work: Work, parts: Sequence[Sequence[int]]) -> list[float]:
        if self.ranking == "likelihood":
            return self._likelihoods(bench, work, parts)
        words = by_words([bench.text(part) for part in parts], work.question)
        return words if self.ranking == "words" else both(self._likelihoods(bench, work, parts), words)

    def _likelihoods(self, bench: Bench, work: Work, parts: Sequence[Sequence[int]]) -> list[float]:
        engine = bench.engine
        opening, sketches = self._sketches(bench, work, parts)
        return question_likelihoods(engine.loaded, opening, sketches, work.question)

    def _sketches(
        self, bench: Bench, work: Work, parts: Sequence[Sequence[int]]
    ) -> tuple[WeightedKV, list[WeightedKV]]:
        """The entries of the template's opening and a sketch of each part, read once for all methods."""
        key = (work.ids, self.entries, self.state_entries)
        if key in bench.remembered:
            known: tuple[WeightedKV, list[WeightedKV]] = bench.remembered[key]
            return known
        engine, policy = bench.engine, make_policy("streaming", entries=self.state_entries, seed=SEED)
        first = engine.loaded.prompt.prefix_ids
        opening = engine.prefill(policy, engine.empty_state(), first, positions="dense")
        sketches: list[WeightedKV] = []
        with torch.inference_mode():
            state = policy.fold(engine.empty_state(), opening)
            for number, part in enumerate(parts):
                segment = engine.prefill(policy, state, part, positions="dense")
                sketches.append(sketch(segment, self.entries, seed=SEED + number))
                state = policy.fold(state, segment)
        bench.remembered[key] = opening, sketches
        return opening, sketches
