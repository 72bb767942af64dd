"""Interface of tracers, and one that does nothing; `otel.py` has OpenTelemetry's.

Heartbeats are not traced: they are most of all calls, and have no phases to show.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from coordinator.service.calls import Call


class Span(Protocol):
    """Span of a call under way."""

    def parked(self) -> None:
        """Note that the call is parked from now on."""

    def answered(self, error: str) -> None:
        """Note the answer; `error`: name of its error code, or NONE."""


class Tracer(Protocol):
    """Factory of spans."""

    def call(self, call: Call) -> AbstractContextManager[Span]:
        """Open the span of a call: a child of the client's, if the call has a trace context."""
        ...


class _Nothing:
    """Tracer and span that do nothing."""

    def call(self, call: Call) -> _Nothing:
        return self

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def parked(self) -> None:
        pass

    def answered(self, error: str) -> None:
        pass


NO_TRACES = _Nothing()
