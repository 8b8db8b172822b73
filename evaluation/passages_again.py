"""Reading again as the product does it: passages found by their words, read exactly, answered from."""

from __future__ import annotations

from dataclasses import dataclass, replace

from evaluation.bench import Bench
from evaluation.methods import Answer, ByPolicy, Method, Work, exact_policy
from kernel_worker.calls import Call
from kernel_worker.stages.rank import BLOCKS, best_passages, read_blocks
from kernel_worker.stages.reread import gap_ids
from orchestrator.jobs import JobOptions


@dataclass(frozen=True)
class PassagesAgain(Method):
    """`passages` of half a segment; the state of the product's policy where no word says where to look."""

    passages: int = JobOptions().reread
    name: str = "passages read again"
    budgeted: bool = False

    def suits(self, bench: Bench, work: Work) -> bool:
        return not bench.fits(len(work.ids))

    def answer(self, bench: Bench, work: Work) -> Answer:
        ids = self.chosen(bench, work)
        if not ids:
            gist = ByPolicy(policy=JobOptions().policy, aware=False)
            return gist.answer(bench, replace(work, entries=JobOptions().cache_entries))
        policy, opening = exact_policy(bench), bench.engine.loaded.prompt.prefix_ids
        reading = bench.read(policy, [*opening, *ids], positions="original")
        text = bench.write(policy, reading, work.instruction, work.answer_tokens)
        return Answer(text, reading.prefill_seconds, 0.0, 0.0)

    def chosen(self, bench: Bench, work: Work) -> list[int]:
        """The ids of the passages that the question is about, with the gap between them."""
        loaded, size = bench.engine.loaded, max(1, bench.segment_tokens // BLOCKS)
        body = work.ids[len(loaded.prompt.prefix_ids) :]
        blocks = read_blocks(loaded.tokenizer, Call(), [bench.text(body)], work.question, size)
        ids: list[int] = []
        for first, stop, _ in best_passages(blocks, self.passages):
            ids += (gap_ids(loaded) if ids else []) + list(body[first * size : stop * size])
        return ids
