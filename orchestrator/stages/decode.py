"""Decode: a worker writes the text from the last state, or from passages that it reads again before; each
token is recorded as it comes."""

from __future__ import annotations

from contextlib import closing

from cache_store.layout import StateMeta
from orchestrator.jobs import REREAD, JobResult
from orchestrator.prompts import instruction
from orchestrator.remedies import Remedy, StageFailed
from orchestrator.stages.context import Finish, StageContext, place
from protos.kernel_worker_pb2 import DecodeDone, DecodeRequest, TokenSpan

_EVIDENCE = ("segment", "start", "end", "score")


def decode(context: StageContext) -> Finish:
    """After a failure the worker resumes from its checkpoint and sends the tokens again from index 0: those
    that are recorded already change nothing."""
    job = context.job
    manifest, meta = context.state_unless_gone()
    record = context.use(context.pool.reserve(job))
    deadline = context.settings.decode_deadline
    with closing(context.calls.stream(record, "Decode", _request(context), deadline=deadline)) as events:
        for event in events:
            if event.HasField("token"):
                context.jobs.token(job, context.claim.token, event.token.index, event.token.text)
            elif event.HasField("reread"):
                context.progress(event.reread.tokens_done / max(1, event.reread.tokens), REREAD)
            elif event.HasField("started") and job.passages:
                context.jobs.emit(job, context.claim.token, "stage", place(job))
            elif event.HasField("done"):
                result = _result(context, event.done, meta, manifest.size if manifest else None)
                apart = {REREAD: event.done.reread_seconds} if job.passages else {}
                return Finish(result, superseded=job.parent_state, apart=apart)
    raise StageFailed(f"worker {record.id} ended a decode without a result", Remedy.SAME)


def _request(context: StageContext) -> DecodeRequest:
    options = context.job.options
    return DecodeRequest(
        tenant=context.job.tenant,
        plan=context.plan(),
        state=context.job.state,
        instruction=instruction(context.job),
        max_new_tokens=options.max_new_tokens,
        temperature=options.temperature,
        top_p=options.top_p,
        seed=options.seed,
        repetition_penalty=options.repetition_penalty,
        tokens=context.job.tokens,
        reread=[
            TokenSpan(first=passage["first"], count=passage["count"]) for passage in context.job.passages
        ],
    )


def _result(
    context: StageContext, done: DecodeDone, meta: StateMeta | None, state_bytes: int | None
) -> JobResult:
    """Everything but the seconds, which the runner adds."""
    job = context.job
    return JobResult(
        job_id=job.id,
        kind=job.kind,
        model=job.options.model,
        text="".join(context.jobs.token_texts(job.tenant, job.id)),
        question=job.question,
        state=job.state if meta else None,
        tokens_read=job.token_count,
        prefill_tokens=job.prefill_tokens,
        tokens_written=done.tokens_written,
        segments=job.segments,
        cache_entries=meta.shape.entries if meta else None,
        state_bytes=state_bytes,
        full_cache_bytes=job.token_count * job.bytes_per_token,
        seconds={},
        finish_reason=done.finish_reason,
        reread_segments=[{name: passage[name] for name in _EVIDENCE} for passage in job.passages],
        error_estimate=meta.error_estimate if meta else None,
        error_by_layer=meta.error_by_layer if meta else None,
    )
