"""Compress: the worker that holds the lease folds the segment into the state and stores the result."""

from __future__ import annotations

from orchestrator.remedies import Remedy, StageFailed
from orchestrator.stages.context import Next, StageContext
from orchestrator.stages.ingest import keep_final
from protos.kernel_worker_pb2 import CompressRequest


def compress(context: StageContext) -> Next:
    """Only the lease's holder can do it; when that worker is gone, the segment is prefilled elsewhere."""
    job = context.job
    record = context.pool.find(job.worker)
    if record is None:
        raise StageFailed(f"worker {job.worker}, which held segment {job.segment}, is gone", Remedy.PREFILL)
    context.pool.hold(job, context.use(record))
    request = CompressRequest(
        tenant=job.tenant,
        plan=context.plan(),
        tokens=job.tokens,
        segment=job.segment,
        parent=job.state,
        lease=job.lease,
    )
    answer = context.calls.unary(record, "Compress", request, deadline=context.settings.compress_deadline)
    done = job.segment + 1
    start = job.segment * job.options.segment_tokens
    fields = {
        "state": answer.state,
        "parent_state": job.state if job.segment else "",  # the empty state is nowhere stored
        "cache_entries": answer.cache_entries,
        "state_bytes": answer.state_bytes,
        "prefill_tokens": job.prefill_tokens + min(job.options.segment_tokens, job.token_count - start),
        "lease": "",
        "best_segments": max(done, job.best_segments),
    }
    progress = done > job.best_segments
    if done == job.segments:
        keep_final(context, answer.state)
        return Next(job.after_reading, done, fields, progress=progress, superseded=job.parent_state)
    return Next("prefill", done, fields, progress=progress, superseded=job.parent_state)
