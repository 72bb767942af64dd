"""What a call is traced with. By default nothing; `otel.py` has the other kind.

Heartbeats are not traced: they are most of all calls, and nothing happens in them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from coordinator.service.calls import Call


class Span(Protocol):
    """A call under way."""

    def parked(self) -> None:
        """It waits for its answer from here on."""

    def answered(self, error: str) -> None:
        """It has its answer; the name of the error code, NONE if all is well."""


class Tracer(Protocol):
    """Makes spans."""

    def call(self, call: Call) -> AbstractContextManager[Span]:
        """The span of a call, below its client's if it came with a trace context."""
        ...


class _Nothing:
    """Made once: nobody looks at it."""

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
