"""Progress of looks at many files: a member whose look takes long is at work, and not stuck."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_TELL: ContextVar[Callable[[], None] | None] = ContextVar("tell", default=None)


@contextmanager
def reporting_progress_to(alive: Callable[[], None]) -> Iterator[None]:
    """Call a function for each file that is looked at, in this thread and meanwhile."""
    before = _TELL.set(alive)
    try:
        yield
    finally:
        _TELL.reset(before)


def one_more() -> None:
    """A file was looked at."""
    if (tell := _TELL.get()) is not None:
        tell()
