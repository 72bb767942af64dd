"""Observers of a node, such as metrics and log lines; they decide nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coordinator.core.values.events import Event


@dataclass(frozen=True, slots=True)
class Watchers:
    """Callbacks of observers, called in the loop; they must not block.

    Args:
        events: events of groups, and their time (epoch milliseconds).
        failure: a failure, in words, with its exception if it is a bug.
        recovery: the end of a failure, in words.
        append: an entry was written: duration in seconds, and number of records.
    """

    events: Callable[[Sequence[Event], int], None]
    failure: Callable[[str, BaseException | None], None]
    recovery: Callable[[str], None]
    append: Callable[[float, int], None] = lambda seconds, records: None
