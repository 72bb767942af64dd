"""The trace that the caller is in, for whoever answers: W3C Trace Context, if there is one."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

Metadata = tuple[tuple[str, str], ...]


def trace_context() -> Metadata:
    """`traceparent` of the span that is current here; nothing without OpenTelemetry or a span."""
    propagator = _propagator()
    if propagator is None:
        return ()
    carrier: dict[str, str] = {}
    propagator.inject(carrier)
    return tuple(carrier.items())


@lru_cache(maxsize=1)
def _propagator() -> Any:  # Any: OpenTelemetry may not be there.
    try:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        return None
    return TraceContextTextMapPropagator()
