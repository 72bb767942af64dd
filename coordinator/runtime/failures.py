"""How a failure of the log is told to a shard."""

from __future__ import annotations

from coordinator.shard.outbox import AppendFailure
from coordinator.storage.log import Ambiguous, Fenced, LogError, TooLarge, Unavailable

_FAILURES: dict[type[LogError], AppendFailure] = {
    Fenced: AppendFailure.FENCED,
    Ambiguous: AppendFailure.AMBIGUOUS,
    Unavailable: AppendFailure.UNAVAILABLE,
    TooLarge: AppendFailure.TOO_LARGE,
}


def failure_of(error: LogError) -> AppendFailure:
    """The shard's word for what the log raised."""
    return _FAILURES[type(error)]
