"""Those who are told what happens inside, and decide nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coordinator.core.events import Event


@dataclass(frozen=True, slots=True)
class Watchers:
    """Called in the loop, at once; they must not wait.

    Args:
        events: what happened in groups, and when (epoch milliseconds).
        failure: what does not work, in words, with the exception behind it if it is a bug.
        recovery: what works again.
        append: an entry is in the log: after how long (seconds), and with how many records.
    """

    events: Callable[[Sequence[Event], int], None]
    failure: Callable[[str, BaseException | None], None]
    recovery: Callable[[str], None]
    append: Callable[[float, int], None] = lambda seconds, records: None
