"""Trace context of outgoing calls, if OpenTelemetry is installed. Source: W3C Trace Context."""

from __future__ import annotations

from functools import lru_cache
from typing import Any


def trace_context() -> tuple[tuple[str, str], ...]:
    """`traceparent` metadata of the current span; empty without OpenTelemetry or a span."""
    propagator = _propagator()
    if propagator is None:
        return ()
    carrier: dict[str, str] = {}
    propagator.inject(carrier)
    return tuple(carrier.items())


@lru_cache(maxsize=1)
def _propagator() -> Any:  # Any: OpenTelemetry may not be installed.
    try:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        return None
    return TraceContextTextMapPropagator()
