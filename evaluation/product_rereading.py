"""Reading again as the product does: its own ranking by words, its passages, and what stands between them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from evaluation.bench import Bench
from evaluation.methods import Answer, ByPolicy, Method, Work, read_exactly
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
        loaded = bench.engine.loaded
        opening, size = loaded.prompt.prefix_ids, bench.segment_tokens // BLOCKS
        body = work.ids[len(opening) :]
        blocks = read_blocks(loaded.tokenizer, Call(), [bench.text(body)], work.question, size)
        passages = best_passages(blocks, self.passages)
        if not passages:
            return ByPolicy(policy=JobOptions().policy, aware=False).answer(bench, work)
        if self.best_last:
            passages = sorted(passages, key=lambda passage: passage[2])
        ids = list(opening)
        for place, (first, stop, _) in enumerate(passages):
            ids += [*(gap_ids(loaded) if place else ()), *body[first * size : stop * size]]
        answer = read_exactly(bench, ids, work)
        if work.evidence is None:
            return answer
        start, end = ((token - len(opening)) / size for token in work.evidence)
        return replace(answer, rank=_rank(passages, start, end))


def _rank(passages: list[Passage], start: float, end: float) -> int:
    """Place, by score, of the passage that holds the blocks [start, end); after all where none does."""
    ranked = sorted(passages, key=lambda passage: -passage[2])
    holding = (place for place, (first, stop, _) in enumerate(ranked, 1) if first <= start and end <= stop)
    return next(holding, len(passages) + 1)
