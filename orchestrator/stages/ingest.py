"""Ingest: a worker turns the stored document into token ids and finds the furthest state already stored."""

from __future__ import annotations

from cache_store.errors import ObjectMissing
from cache_store.worker_registry import WorkerRecord
from orchestrator.remedies import Remedy, StageFailed
from orchestrator.stages.context import Next, StageContext
from protos.kernel_worker_pb2 import IngestRequest, IngestResponse


def ingest(context: StageContext) -> Next:
    """Fixes model fingerprint, positions and the number of segments; goes on where the stored state ends.

    A question goes on to its passages, however much of the document would have to be read for a state.
    """
    job = context.job
    record = context.use(context.pool.pick(job), reserved=False)
    plan = context.plan()
    plan.model_fingerprint = record.model_fingerprint
    request = IngestRequest(tenant=job.tenant, document=job.document, plan=plan)
    answer = context.calls.unary(record, "Ingest", request, deadline=context.settings.ingest_deadline)
    return _next(context, record, answer)


def _next(context: StageContext, record: WorkerRecord, answer: IngestResponse) -> Next:
    fields = {
        "tokens": answer.tokens,
        "token_count": answer.token_count,
        "segments": answer.segments,
        "positions": answer.positions,
        "lease": "",
        "model_fingerprint": record.model_fingerprint,
        "bytes_per_token": record.bytes_per_token,
        "best_segments": max(context.job.best_segments, answer.done_segments),
    }
    progress = answer.done_segments > context.job.best_segments
    missing = answer.done_segments < answer.segments
    if missing and context.job.can_do_without_state:
        return Next("rank", answer.done_segments, fields, progress=progress)
    fields |= {"state": answer.state, "parent_state": ""}
    if missing:
        return Next("prefill", answer.done_segments, fields, progress=progress)
    keep_final(context, answer.state)
    return Next(context.job.after_reading, answer.segments, fields, progress=progress)


def keep_final(context: StageContext, state: str) -> None:
    """Marks the state that the text is written from, so that no other job deletes it as superseded."""
    try:
        context.store.keep("state", state)
    except ObjectMissing as error:
        raise StageFailed(str(error), Remedy.INGEST) from error
