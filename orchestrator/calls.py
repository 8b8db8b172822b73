"""One call to a worker: with a deadline, cancelled when the claim is lost, its failure told as a remedy."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc

from cache_store.tracing import carrier, span
from cache_store.worker_registry import WorkerRecord
from orchestrator.channels import Channels
from orchestrator.claim import Claim
from orchestrator.errors import WorkerInsecure
from orchestrator.jobs import Stage
from orchestrator.remedies import failure_of, insecure
from protos.kernel_worker_pb2 import ReleaseRequest
from protos.kernel_worker_pb2_grpc import KernelWorkerStub

_log = logging.getLogger(__name__)

# In a call's metadata: the job that it is made for, so that the worker's log can tell.
JOB_KEY = "docexpress-job"


class Calls:
    """The calls of one claimed stage. They raise ClaimLost and StageFailed."""

    def __init__(self, channels: Channels, claim: Claim, stage: Stage) -> None:
        self._channels = channels
        self._claim = claim
        self._stage = stage

    def unary(self, record: WorkerRecord, method: str, request: Any, *, deadline: float) -> Any:
        """The answer of a method of KernelWorker; `deadline` in seconds."""
        with self._stub(record) as stub, self._metadata(method, record) as metadata:
            call = getattr(stub, method).future(request, timeout=deadline, metadata=metadata)
            try:
                with self._claim.cancelling(call.cancel):
                    return call.result()
            except (grpc.RpcError, grpc.FutureCancelledError) as error:
                raise self._failure(record, call) from error

    def stream(self, record: WorkerRecord, method: str, request: Any, *, deadline: float) -> Generator[Any]:
        """The answers of a streaming method, as they come. Closing the iterator cancels the call."""
        with self._stub(record) as stub, self._metadata(method, record) as metadata:
            try:
                call = getattr(stub, method)(request, timeout=deadline, metadata=metadata)
                with self._claim.cancelling(call.cancel):
                    try:
                        yield from call
                    finally:
                        call.cancel()
            except grpc.RpcError as error:
                raise self._failure(record, error) from error

    @contextmanager
    def _stub(self, record: WorkerRecord) -> Iterator[KernelWorkerStub]:
        with ExitStack() as stack:
            try:
                stub = stack.enter_context(self._channels.stub(record))
            except WorkerInsecure as error:
                raise insecure(self._stage, error) from error
            yield stub

    @contextmanager
    def _metadata(self, method: str, record: WorkerRecord) -> Iterator[tuple[tuple[str, str], ...]]:
        """What goes along with a call, and the call's span around it."""
        with span(f"call {method}", "CLIENT", worker=record.id):
            yield ((JOB_KEY, self._claim.job.id), *carrier().items())

    def _failure(self, record: WorkerRecord, error: grpc.RpcError) -> Exception:
        self._claim.check()
        return failure_of(self._stage, record.id, error)


def release_lease(channels: Channels, record: WorkerRecord, lease: str, *, deadline: float) -> None:
    """Gives up a lease. A worker that does not answer is left alone: the lease lapses by itself."""
    try:
        with channels.stub(record) as stub:
            stub.Release(ReleaseRequest(lease=lease), timeout=deadline)
    except grpc.RpcError as error:
        _log.info("lease on worker %s not released: %s", record.id, error.code().name)
    except WorkerInsecure as error:
        _log.info("lease on worker %s not released: %s", record.id, error)
