"""Every call of the service is measured, and its log lines tell which job and stage they belong to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from cache_store.log_format import about
from kernel_worker.metrics import Metrics

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
        facts = {"stage": method.lower(), **_job(details.invocation_metadata)}

        def unary(request: Any, context: grpc.ServicerContext) -> Any:
            with about(**facts, **_segment(request)), self._metrics.call(method, context) as see:
                answer = handler.unary_unary(request, context)
                see(answer)
            return answer

        def stream(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            with about(**facts, **_segment(request)), self._metrics.call(method, context) as see:
                for answer in handler.unary_stream(request, context):
                    see(answer)
                    yield answer

        forms = (handler.request_deserializer, handler.response_serializer)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(stream, *forms)
        return grpc.unary_unary_rpc_method_handler(unary, *forms)


def _job(metadata: Any) -> dict[str, str]:
    """The job's id, if the caller told one that can be one: it goes into the log."""
    found = [value for key, value in metadata or () if key == JOB_KEY]
    return {"job": found[0]} if found and _JOB.fullmatch(str(found[0])) else {}


def _segment(request: Any) -> dict[str, int]:
    return {"segment": request.segment} if hasattr(request, "segment") else {}
