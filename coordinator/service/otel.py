"""OpenTelemetry traces: a span for each call, with events where it is parked and released.

The client's context comes as `traceparent` (W3C Trace Context), and its sampling decision holds; of
calls without a context, `sample_percent` are sampled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from coordinator import __version__
from coordinator.service.calls import Call
from coordinator.service.tracing import Tracer

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as OpenTelemetrySpan

NEEDS_EXTRA = "traces need the extra: consumer-group-coordinator[otel]"


class CannotTrace(ValueError):
    """The extra is not installed; the message names it."""


def open_tracer(
    endpoint: str, sample_percent: int, instance: str
) -> tuple[Tracer, Callable[[], None]]:
    """Return a tracer that exports to a collector, and a function that shuts it down.

    Args:
        endpoint: http://HOST:PORT or https://HOST:PORT of an OTLP collector (gRPC).
        sample_percent: share of calls to sample, of those without a trace context.
        instance: HOST:PORT of this node.
    Raises:
        CannotTrace: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        raise CannotTrace(NEEDS_EXTRA) from error
    about = {
        "service.name": "coordinator",
        "service.version": __version__,
        "service.instance.id": instance,
    }
    provider = TracerProvider(
        resource=Resource.create(about),
        sampler=ParentBased(TraceIdRatioBased(sample_percent / 100)),
        shutdown_on_exit=False,
    )
    insecure = urlsplit(endpoint).scheme != "https"
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, insecure=insecure))
    )
    return OtelTracer(provider), provider.shutdown


class OtelTracer:
    """Tracer that makes spans of an OpenTelemetry provider, whose sampler decides which."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = provider.get_tracer("coordinator", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._kind = SpanKind.SERVER

    @contextmanager
    def call(self, call: Call) -> Iterator[OtelSpan]:
        with self._tracer.start_as_current_span(
            f"coordinator.v1/{call.kind.name}",
            context=self._propagator.extract(call.trace()),
            kind=self._kind,
            attributes={
                "rpc.system": call.system,
                "rpc.method": call.kind.name,
                "messaging.consumer.group.name": call.group_id,
            },
            record_exception=False,  # A call that is refused or taken back is no failure of ours.
        ) as span:
            yield OtelSpan(span)


class OtelSpan:
    """OpenTelemetry span with this service's events and attributes."""

    def __init__(self, span: OpenTelemetrySpan) -> None:
        self._span = span
        self._parked_at = 0.0

    def parked(self) -> None:
        self._parked_at = time.monotonic()
        self._span.add_event("parked")

    def answered(self, error: str) -> None:
        if self._parked_at:
            waited_ms = round(1000 * (time.monotonic() - self._parked_at))
            self._span.add_event("released", {"coordinator.parked_ms": waited_ms})
        self._span.set_attribute("coordinator.error_code", error)
