"""Every call of the service is measured, and its log lines tell which job and stage they belong to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc

from cache_store.log_format import about
from cache_store.tracing import span
from kernel_worker.metrics import Metrics, See

# In a call's metadata: the job that it is made for.
JOB_KEY = "docexpress-job"
_JOB = re.compile("[a-z0-9]{1,64}")
_SERVICE = "/docexpress.v1.KernelWorker/"


class Watch(grpc.ServerInterceptor):  # type: ignore[type-arg]  # it takes none at run time
    """Changes nothing about a call or its answers."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        handler = continuation(details)
        if handler is None or not details.method.startswith(_SERVICE):
            return handler
        method = details.method.removeprefix(_SERVICE)
        told = {key: str(value) for key, value in details.invocation_metadata or ()}

        def unary(request: Any, context: grpc.ServicerContext) -> Any:
            with self._watched(method, told, request, context) as see:
                answer = handler.unary_unary(request, context)
                see(answer)
            return answer

        def stream(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            with self._watched(method, told, request, context) as see:
                for answer in handler.unary_stream(request, context):
                    see(answer)
                    yield answer

        forms = (handler.request_deserializer, handler.response_serializer)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(stream, *forms)
        return grpc.unary_unary_rpc_method_handler(unary, *forms)

    @contextmanager
    def _watched(
        self, method: str, told: Mapping[str, str], request: Any, context: grpc.ServicerContext
    ) -> Iterator[See]:
        facts = _facts(told, request)
        with (
            about(stage=method.lower(), **facts),
            span(method, "SERVER", told, **facts),
            self._metrics.call(method, context) as see,
        ):
            yield see


def _facts(told: Mapping[str, str], request: Any) -> dict[str, str | int]:
    """The segment, and the job's id if the caller told one that can be one: it goes into the log."""
    job = told.get(JOB_KEY, "")
    return {
        **({"job": job} if _JOB.fullmatch(job) else {}),
        **({"segment": request.segment} if hasattr(request, "segment") else {}),
    }
