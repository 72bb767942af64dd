"""How a failure of the log is told to a shard."""

from __future__ import annotations

from coordinator.shard.effects import Job, LogFailed
from coordinator.shard.outbox import AppendFailure
from coordinator.storage.log import Ambiguous, Fenced, LogError, TooLarge, Unavailable

_FAILURES: dict[type[LogError], AppendFailure] = {
    Fenced: AppendFailure.FENCED,
    Ambiguous: AppendFailure.AMBIGUOUS,
    Unavailable: AppendFailure.UNAVAILABLE,
    TooLarge: AppendFailure.TOO_LARGE,
}


def log_failed(job: Job, error: LogError) -> LogFailed:
    """The driver's word for what the log raised when it was given a job."""
    is_lasting = isinstance(error, Unavailable) and error.is_lasting
    return LogFailed(job, _FAILURES[type(error)], is_lasting, str(error))
