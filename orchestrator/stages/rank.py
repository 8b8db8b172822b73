"""Rank: a worker finds the passages that a question is about, which the decode will read again."""

from __future__ import annotations

from typing import Any

from orchestrator.prompts import instruction
from orchestrator.stages.context import Next, StageContext
from protos.kernel_worker_pb2 import Passage, RankRequest


def rank(context: StageContext) -> Next:
    """What is chosen is recorded with the job: however often the decode is tried, it reads the same.

    A state that holds every token of the document has lost nothing, and nothing is read again. For a question
    the state may be gone: it is made again only where there are no passages to answer from.
    """
    job = context.job
    _, meta = context.state_unless_gone()
    if meta is not None and meta.shape.entries >= meta.seen:
        return Next("decode", job.segment, {"passages": [], "needs_state": True})
    record = context.use(context.pool.pick(job), reserved=False)
    request = RankRequest(
        tenant=job.tenant,
        plan=context.plan(),
        document=job.document,
        tokens=job.tokens,
        question=job.sought,
        instruction=instruction(job),
        max_new_tokens=job.options.max_new_tokens,
        count=job.options.reread,
    )
    answer = context.calls.unary(record, "Rank", request, deadline=context.settings.ingest_deadline)
    passages = [_recorded(passage) for passage in answer.passages]
    fields = {"passages": passages, "needs_state": not passages}
    if meta is None and not passages:
        return Next("ingest", 0, fields)
    return Next("decode", job.segment, fields)


def _recorded(passage: Passage) -> dict[str, Any]:
    return {
        "segment": passage.segment,
        "first": passage.span.first,
        "count": passage.span.count,
        "start": passage.start,
        "end": passage.end,
        "score": round(passage.score, 3),
    }
