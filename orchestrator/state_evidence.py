"""What of a document survives in a state: a worker finds out, because its tokenizer knows the places."""

from __future__ import annotations

import dataclasses

import grpc

from cache_store.errors import FormatMismatch, ObjectDamaged, ObjectMissing
from cache_store.worker_registry import WorkerRecord
from orchestrator.channels import Channels
from orchestrator.errors import NoWorker, PoolBusy, WorkerUnavailable
from orchestrator.jobs import Job
from orchestrator.pool import Pool
from orchestrator.settings import Settings
from orchestrator.stages.context import plan_of
from protos.kernel_worker_pb2 import EvidenceRequest, EvidenceResponse

_GONE: dict[grpc.StatusCode, type[Exception]] = {
    grpc.StatusCode.NOT_FOUND: ObjectMissing,
    grpc.StatusCode.DATA_LOSS: ObjectDamaged,
    grpc.StatusCode.FAILED_PRECONDITION: FormatMismatch,
    grpc.StatusCode.INVALID_ARGUMENT: FormatMismatch,  # tokens of another tokenizer, say
}


@dataclasses.dataclass(frozen=True, slots=True)
class EvidenceBin:
    """Characters [start, end) of a document's text: `entries` of its `tokens` are kept, with `weight`
    altogether; means over all layers and KV heads."""

    start: int
    end: int
    tokens: int
    weight: float
    entries: float


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """Equal parts of a document, in order."""

    bins: tuple[EvidenceBin, ...]


class EvidenceFinder:
    """Holds a connection to each worker that was asked. Safe to share between threads; close it."""

    def __init__(self, pool: Pool, settings: Settings) -> None:
        self._pool = pool
        self._channels = Channels(settings)
        self._deadline = settings.evidence_deadline

    def find(self, job: Job, bins: int) -> Evidence:
        """Of a finished job. Raises WorkerUnavailable, ObjectMissing, ObjectDamaged, FormatMismatch."""
        answer = self._ask(self._worker(job), job, bins)
        return Evidence(
            tuple(
                EvidenceBin(part.start, part.end, part.tokens, round(part.weight, 4), round(part.entries, 4))
                for part in answer.bins
            )
        )

    def close(self) -> None:
        self._channels.close()

    def _worker(self, job: Job) -> WorkerRecord:
        self._channels.prune(member.record for member in self._pool.members())
        try:
            return self._pool.pick(job)
        except (NoWorker, PoolBusy) as error:
            raise WorkerUnavailable(str(error)) from error

    def _ask(self, record: WorkerRecord, job: Job, bins: int) -> EvidenceResponse:
        request = EvidenceRequest(
            tenant=job.tenant,
            plan=plan_of(job),
            document=job.document,
            tokens=job.tokens,
            state=job.state,
            bins=bins,
        )
        try:
            with self._channels.stub(record) as stub:
                answer: EvidenceResponse = stub.Evidence(request, timeout=self._deadline)
                return answer
        except grpc.RpcError as error:
            details = " ".join((error.details() or error.code().name).split())
            raise _GONE.get(error.code(), WorkerUnavailable)(details) from error
