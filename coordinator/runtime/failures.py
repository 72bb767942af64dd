"""How a failure of the log is told to a shard."""

from __future__ import annotations

from coordinator.shard.outbox import AppendFailed, AppendFailure
from coordinator.storage.log import Ambiguous, Fenced, LogError, TooLarge, Unavailable

_FAILURES: dict[type[LogError], AppendFailure] = {
    Fenced: AppendFailure.FENCED,
    Ambiguous: AppendFailure.AMBIGUOUS,
    Unavailable: AppendFailure.UNAVAILABLE,
    TooLarge: AppendFailure.TOO_LARGE,
}


def append_failed(sequence: int, error: LogError) -> AppendFailed:
    """The shard's word for what the log raised when it was given an entry."""
    is_lasting = isinstance(error, Unavailable) and error.is_lasting
    return AppendFailed(sequence, _FAILURES[type(error)], is_lasting)
