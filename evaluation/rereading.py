"""Reading again: segments are ranked for a question by their sketches or by its words; the best are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import bm25s
import torch

from evaluation.bench import Bench
from evaluation.methods import SEED, Answer, Method, Work, exact_policy
from kernel_worker.ranking import question_likelihoods
from kernels.selection import make_policy
from kernels.sketch import sketch
from kernels.weighted_kv import WeightedKV

Ranking = Literal["likelihood", "words", "both"]
RANKINGS: tuple[Ranking, ...] = ("words", "likelihood", "both")
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
    """The `count` best places, in the order of the document."""
    return sorted(sorted(range(len(scores)), key=lambda place: -scores[place])[:count])


@dataclass(frozen=True)
class Reread(Method):
    """Reads the document once, not knowing the question, leaves a sketch of each segment, then reads again.

    entries        of a sketch
    segments       read again, exactly, in the order of the document
    state_entries  of the state that the segments follow on while their sketches are made
    """

    ranking: Ranking = "likelihood"
    entries: int = 128
    segments: int = 3
    state_entries: int = 1024
    budgeted: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        sketched = "" if self.ranking == "words" else f", sketches of {self.entries}"
        return f"read again by {self.ranking}{sketched}"

    def suits(self, bench: Bench, work: Work) -> bool:
        return not bench.fits(len(work.ids))

    def answer(self, bench: Bench, work: Work) -> Answer:
        opening = bench.engine.loaded.prompt.prefix_ids
        body = work.ids[len(opening) :]
        size = bench.segment_tokens
        pieces = [body[start : start + size] for start in range(0, len(body), size)]
        chosen = best(self._scores(bench, work, pieces), self.segments)
        again = [*opening, *(token for place in chosen for token in pieces[place])]
        policy = exact_policy(bench)
        reading = bench.read(policy, again, positions="original")
        text = bench.write(policy, reading, work.instruction, work.answer_tokens)
        return Answer(text, reading.prefill_seconds, 0.0, 0.0)

    def _scores(self, bench: Bench, work: Work, pieces: Sequence[Sequence[int]]) -> list[float]:
        if self.ranking == "likelihood":
            return self._likelihoods(bench, work, pieces)
        words = by_words([bench.text(piece) for piece in pieces], work.question)
        return words if self.ranking == "words" else both(self._likelihoods(bench, work, pieces), words)

    def _likelihoods(self, bench: Bench, work: Work, pieces: Sequence[Sequence[int]]) -> list[float]:
        engine, policy = bench.engine, make_policy("streaming", entries=self.state_entries, seed=SEED)
        loaded = engine.loaded
        opening = engine.prefill(policy, engine.empty_state(), loaded.prompt.prefix_ids, positions="dense")
        sketches: list[WeightedKV] = []
        with torch.inference_mode():
            state = policy.fold(engine.empty_state(), opening)
            for number, piece in enumerate(pieces):
                segment = engine.prefill(policy, state, piece, positions="dense")
                sketches.append(sketch(segment, self.entries, seed=SEED + number))
                state = policy.fold(state, segment)
        return question_likelihoods(loaded, opening, sketches, work.question)
