"""Collects spans: those of this process in memory, those of others as a collector does, over OTLP."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@dataclasses.dataclass(frozen=True)
class Span:
    """Ids in hex; `parent` is "" for a root. `raw` is all of it, as text."""

    name: str
    trace: str
    id: str
    parent: str
    raw: str


class Spans:
    """Collects inside `with`, once in a process: OpenTelemetry keeps the first provider for good."""

    def __init__(self) -> None:
        self._memory = InMemorySpanExporter()
        self._provider = TracerProvider()
        self._provider.add_span_processor(SimpleSpanProcessor(self._memory))
        self._received: list[Span] = []
        received = self._received

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                received.extend(_sent(ExportTraceServiceRequest.FromString(body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def environment(self) -> Mapping[str, str]:
        """For a process whose spans are to arrive here."""
        return {
            "DOCEXPRESS_TRACES": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._server.server_port}",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }

    def of(self, trace_id: str) -> list[Span]:
        """The spans of a trace that have ended and arrived."""
        own = [_own(span) for span in self._memory.get_finished_spans()]
        return [span for span in [*own, *self._received] if span.trace == trace_id]

    def __enter__(self) -> Self:
        trace.set_tracer_provider(self._provider)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        self._provider.shutdown()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _own(span: ReadableSpan) -> Span:
    context, parent = span.context, span.parent
    return Span(
        span.name,
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        "" if parent is None else f"{parent.span_id:016x}",
        span.to_json(),
    )


def _sent(request: ExportTraceServiceRequest) -> list[Span]:
    return [
        Span(span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), str(span))
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
