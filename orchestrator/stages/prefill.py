"""Prefill: a worker runs the model over one segment and keeps its new KV under a lease."""

from __future__ import annotations

from contextlib import closing

from orchestrator.remedies import Remedy, StageFailed
from orchestrator.stages.context import Next, StageContext
from protos.kernel_worker_pb2 import PrefillRequest


def prefill(context: StageContext) -> Next:
    """The worker stays reserved for the job until the segment is folded in."""
    job = context.job
    record = context.use(context.pool.reserve(job))
    request = PrefillRequest(
        tenant=job.tenant, plan=context.plan(), tokens=job.tokens, segment=job.segment, parent=job.state
    )
    deadline = context.settings.prefill_deadline
    with closing(context.calls.stream(record, "Prefill", request, deadline=deadline)) as events:
        for event in events:
            if event.HasField("done"):
                fields = {"lease": event.done.lease, "worker": record.id}
                return Next("compress", job.segment, fields, hold=True)
            context.progress(event.progress.layers_done / max(1, event.progress.layers))
    raise StageFailed(f"worker {record.id} ended a prefill without a result", Remedy.SAME)
