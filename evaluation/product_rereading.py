"""Reading again as the product does: its own ranking by words, its passages, and what stands between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from evaluation.bench import Bench
from evaluation.methods import Answer, ByPolicy, Method, Work, read_exactly
from evaluation.scoring import contains_any
from kernel_worker.calls import Call
from kernel_worker.stages.rank import BLOCKS, best_passages, read_blocks
from kernel_worker.stages.reread import gap_ids
from orchestrator.jobs import JobOptions

Passage = tuple[int, int, float]
"""First block, last block + 1, score."""


@dataclass(frozen=True)
class ProductReread(Method):
    """Passages that share rare words with the question, in the order of the document.

    passages   at most
    best_last  whether the best one stands next to the question instead
    """

    passages: int = JobOptions().reread
    best_last: bool = False
    budgeted: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"read again, {self.passages} passages" + (", best last" if self.best_last else "")

    def suits(self, bench: Bench, work: Work) -> bool:
        return bool(work.question) and len(work.ids) > bench.segment_tokens

    def answer(self, bench: Bench, work: Work) -> Answer:
        """From the state of the product's policy where no word of the question tells passages apart."""
        opening, size = bench.engine.loaded.prompt.prefix_ids, bench.segment_tokens // BLOCKS
        body, gap = work.ids[len(opening) :], gap_ids(bench.engine.loaded)
        passages = self._passages(bench, work.ids, work.question)
        if not passages:
            return ByPolicy(policy=JobOptions().policy, aware=False).answer(bench, work)
        if self.best_last:
            passages = sorted(passages, key=lambda passage: passage[2])
        ids = list(opening)
        for place, (first, stop, _) in enumerate(passages):
            ids += [*(gap if place else ()), *body[first * size : stop * size]]
        answer = read_exactly(bench, ids, work)
        if work.evidence is None:
            return answer
        return replace(answer, rank=self.place(bench, work.ids, work.question, work.evidence))

    def place(self, bench: Bench, ids: Sequence[int], question: str, evidence: tuple[int, int]) -> int:
        """Place by score of the passage with the evidence.

        `passages` + 1 where none has it; 0 where there is none at all.
        """
        size, opening = bench.segment_tokens // BLOCKS, len(bench.engine.loaded.prompt.prefix_ids)
        start, end = ((token - opening) / size for token in evidence)
        ranked = self._ranked(bench, ids, question)
        return self._place(first <= start and end <= stop for first, stop, _ in ranked)

    def place_of_answer(
        self, bench: Bench, ids: Sequence[int], question: str, accepted: Sequence[str]
    ) -> int:
        """The same for the best passage with an accepted answer in it."""
        size, body = bench.segment_tokens // BLOCKS, ids[len(bench.engine.loaded.prompt.prefix_ids) :]
        ranked = self._ranked(bench, ids, question)
        return self._place(
            contains_any(bench.text(body[first * size : stop * size]), accepted) for first, stop, _ in ranked
        )

    def _place(self, holding: Iterable[bool]) -> int:
        places = list(holding)
        if not places:
            return 0
        # There may be fewer passages than were wanted: what none of them holds is beyond all that are wanted.
        return places.index(True) + 1 if True in places else self.passages + 1

    def _ranked(self, bench: Bench, ids: Sequence[int], question: str) -> list[Passage]:
        """The best first."""
        return sorted(self._passages(bench, ids, question), key=lambda passage: -passage[2])

    def _passages(self, bench: Bench, ids: Sequence[int], question: str) -> list[Passage]:
        loaded = bench.engine.loaded
        text = bench.text(ids[len(loaded.prompt.prefix_ids) :])
        blocks = read_blocks(loaded.tokenizer, Call(), [text], question, bench.segment_tokens // BLOCKS)
        return best_passages(blocks, self.passages)
