"""Traces with OpenTelemetry, from an HTTP request through Celery to the calls of a worker.

Without the extra docexpress[traces], and without `set_up`, every function here does nothing. The ready-made
instrumentations are not used: the one of gRPC's client takes `cancel` away from streams, the one of Celery
leaves spans of an application open that is not the current one, and all of them record the messages of
exceptions, which may hold a document's text. A span here tells names, ids and the kind of an error.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, TypeAlias

TRACEPARENT = "traceparent"  # W3C Trace Context; in HTTP, in Celery's headers and in gRPC's metadata

_INSTALLED = importlib.util.find_spec("opentelemetry") is not None

SpanKind: TypeAlias = Literal["SERVER", "CLIENT", "PRODUCER", "CONSUMER"]
Carrier: TypeAlias = Mapping[str, str]


class TracesNotInstalled(Exception):
    """Traces are asked for, and OpenTelemetry is not there."""


def set_up(service: str, wanted: bool) -> None:
    """Makes this process send its spans to where OpenTelemetry's own variables (OTEL_...) say, over OTLP.

    To be called once, at its start. Raises TracesNotInstalled.
    """
    if not wanted:
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise TracesNotInstalled("DOCEXPRESS_TRACES is set: install docexpress[traces].") from error
    name = os.environ.get("OTEL_SERVICE_NAME", service)
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


@contextmanager
def span(name: str, kind: SpanKind, parent: Carrier | None = None, **attributes: str | int) -> Iterator[None]:
    """A span around the block, below the one that `parent` names, by default the present one of this context.

    An exception marks it as failed, by its kind alone.
    """
    if not _INSTALLED:
        yield
        return
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    with trace.get_tracer("docexpress").start_as_current_span(
        name,
        context=None if parent is None else TraceContextTextMapPropagator().extract(dict(parent)),
        kind=trace.SpanKind[kind],
        attributes={f"docexpress.{key}": value for key, value in attributes.items()},
        record_exception=False,
        set_status_on_exception=False,
    ) as begun:
        try:
            yield
        except Exception as error:
            begun.set_status(trace.Status(trace.StatusCode.ERROR, type(error).__name__))
            raise


def carrier() -> dict[str, str]:
    """What names the present span to another process; empty where there is none."""
    found: dict[str, str] = {}
    if _INSTALLED:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(found)
    return found
