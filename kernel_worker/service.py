"""The gRPC methods: proto in, one call, proto out. What a stage does stands in `kernel_worker.stages`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import grpc

from cache_store.naming import Plan
from kernel_worker.sampling import Sampling
from kernel_worker.stages.compress import compress
from kernel_worker.stages.decode import DecodeEvent, DecodeRequest, Finished, Rereading, Started, decode
from kernel_worker.stages.desk import Desk, invalid_arguments
from kernel_worker.stages.evidence import EvidenceRequest, evidence
from kernel_worker.stages.ingest import ingest
from kernel_worker.stages.prefill import PrefillEvent, Progress, prefill
from kernel_worker.stages.rank import Passage, RankRequest, rank
from kernel_worker.stages.reread import Span
from kernel_worker.stages.segments import SegmentRequest
from kernel_worker.status import answering
from kernels.dispatch import backend
from protos import kernel_worker_pb2 as pb
from protos import kernel_worker_pb2_grpc as pb_grpc

AUTO = "auto"


class KernelWorkerService(pb_grpc.KernelWorkerServicer):
    """Serves the stages of one desk. An exception ends a call with the status that `status.py` gives it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def Describe(self, request: pb.DescribeRequest, context: grpc.ServicerContext) -> pb.DescribeResponse:
        with answering(context):
            return description(self._desk)

    def Ingest(self, request: pb.IngestRequest, context: grpc.ServicerContext) -> pb.IngestResponse:
        with answering(context) as call:
            auto = request.plan.positions == AUTO
            plan = plan_of(request.plan, positions="dense" if auto else request.plan.positions)
            found = ingest(self._desk, call, request.tenant, request.document, plan, auto=auto)
            return pb.IngestResponse(
                tokens=found.tokens,
                token_count=found.token_count,
                segments=found.segments,
                done_segments=found.done_segments,
                state=found.state,
                positions=found.positions,
            )

    def Prefill(self, request: pb.PrefillRequest, context: grpc.ServicerContext) -> Iterator[pb.PrefillEvent]:
        with answering(context) as call:
            for event in prefill(self._desk, call, segment_of(request)):
                yield prefill_event(self._desk.worker_id, event)

    def Compress(self, request: pb.CompressRequest, context: grpc.ServicerContext) -> pb.CompressResponse:
        with answering(context) as call:
            done = compress(self._desk, call, segment_of(request), request.lease)
            return pb.CompressResponse(
                state=done.state,
                cache_entries=done.cache_entries,
                state_bytes=done.state_bytes,
                tokens_seen=done.tokens_seen,
                seconds=done.seconds,
            )

    def Rank(self, request: pb.RankRequest, context: grpc.ServicerContext) -> pb.RankResponse:
        with answering(context) as call:
            ranked = rank(self._desk, call, ranking_of(request))
            return pb.RankResponse(passages=map(passage_message, ranked.passages), seconds=ranked.seconds)

    def Evidence(self, request: pb.EvidenceRequest, context: grpc.ServicerContext) -> pb.EvidenceResponse:
        with answering(context) as call:
            wanted = EvidenceRequest(
                tenant=request.tenant,
                plan=plan_of(request.plan, positions=request.plan.positions),
                document=request.document,
                tokens=request.tokens,
                state=request.state,
                bins=request.bins,
            )
            found = evidence(self._desk, call, wanted)
            bins = (pb.EvidenceBin(**dataclasses.asdict(part)) for part in found.bins)
            return pb.EvidenceResponse(bins=bins, seconds=found.seconds)

    def Decode(self, request: pb.DecodeRequest, context: grpc.ServicerContext) -> Iterator[pb.DecodeEvent]:
        with answering(context) as call:
            for event in decode(self._desk, call, writing_of(request)):
                yield decode_event(event)

    def Release(self, request: pb.ReleaseRequest, context: grpc.ServicerContext) -> pb.ReleaseResponse:
        with answering(context):
            self._desk.leases.release(request.lease)
            return pb.ReleaseResponse()


def description(desk: Desk) -> pb.DescribeResponse:
    model = desk.loaded
    return pb.DescribeResponse(
        worker_id=desk.worker_id,
        model_name=model.name,
        model_fingerprint=model.fingerprint,
        tokenizer_fingerprint=model.tokenizer_fingerprint,
        device=str(model.device),
        backend=backend(model.device),
        dtype=str(model.dtype).removeprefix("torch."),
        window=model.window,
        layers=model.layers,
        kv_heads=model.kv_heads,
        head_dim=model.head_dim,
        bytes_per_token=model.bytes_per_token,
        capacity=desk.slots.capacity,
        version=desk.version,
    )


def plan_of(message: pb.StatePlan, *, positions: str) -> Plan:
    """Raises InvalidRequest for a field out of bounds."""
    with invalid_arguments():
        return Plan(
            model_fingerprint=message.model_fingerprint,
            policy=message.policy,
            cache_entries=message.cache_entries,
            segment_tokens=message.segment_tokens,
            seed=message.seed,
            positions=positions,
            parameters=dict(message.parameters),
        )


def segment_of(request: pb.PrefillRequest | pb.CompressRequest) -> SegmentRequest:
    return SegmentRequest(
        tenant=request.tenant,
        plan=plan_of(request.plan, positions=request.plan.positions),
        tokens=request.tokens,
        index=request.segment,
        parent=request.parent,
    )


def ranking_of(request: pb.RankRequest) -> RankRequest:
    """Raises InvalidRequest."""
    return RankRequest(
        tenant=request.tenant,
        plan=plan_of(request.plan, positions=request.plan.positions),
        document=request.document,
        tokens=request.tokens,
        question=request.question,
        instruction=request.instruction,
        max_new_tokens=request.max_new_tokens,
        count=request.count,
    )


def passage_message(passage: Passage) -> pb.Passage:
    return pb.Passage(
        segment=passage.segment,
        span=pb.TokenSpan(first=passage.span.first, count=passage.span.count),
        start=passage.start,
        end=passage.end,
        score=passage.score,
    )


def writing_of(request: pb.DecodeRequest) -> DecodeRequest:
    """Raises InvalidRequest. In proto3 a float that was not set is 0: top_p and the penalty are off then."""
    return DecodeRequest(
        tenant=request.tenant,
        plan=plan_of(request.plan, positions=request.plan.positions),
        state=request.state,
        instruction=request.instruction,
        sampling=Sampling(
            max_new_tokens=request.max_new_tokens,
            temperature=request.temperature,
            top_p=request.top_p or 1.0,
            repetition_penalty=request.repetition_penalty or 1.0,
            seed=request.seed,
        ),
        tokens=request.tokens,
        reread=tuple(Span(span.first, span.count) for span in request.reread),
    )


def prefill_event(worker_id: str, event: PrefillEvent) -> pb.PrefillEvent:
    if isinstance(event, Progress):
        return pb.PrefillEvent(
            progress=pb.PrefillProgress(layers_done=event.layers_done, layers=event.layers)
        )
    return pb.PrefillEvent(
        done=pb.PrefillDone(
            lease=event.lease, worker_id=worker_id, tokens=event.tokens, seconds=event.seconds
        )
    )


def decode_event(event: DecodeEvent) -> pb.DecodeEvent:
    if isinstance(event, Started):
        return pb.DecodeEvent(
            started=pb.DecodeStarted(
                prompt_tokens=event.prompt_tokens,
                resumed_tokens=event.resumed_tokens,
                checkpoint=event.checkpoint,
            )
        )
    if isinstance(event, Finished):
        return pb.DecodeEvent(
            done=pb.DecodeDone(
                finish_reason=event.finish_reason,
                tokens_written=event.tokens_written,
                seconds=event.seconds,
                reread_seconds=event.reread_seconds,
            )
        )
    if isinstance(event, Rereading):
        return pb.DecodeEvent(reread=pb.RereadProgress(tokens_done=event.tokens_done, tokens=event.tokens))
    return pb.DecodeEvent(token=pb.DecodeToken(index=event.index, text=event.text))
