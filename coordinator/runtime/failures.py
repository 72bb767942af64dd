"""How what went wrong with a job is told to a shard's driver, whoever was its host."""

from __future__ import annotations

from coordinator.shard.effects import Broken, FoundDamage, Job, LogFailed
from coordinator.shard.outbox import AppendFailure
from coordinator.storage.log import (
    Ambiguous,
    Damaged,
    Fenced,
    LogError,
    TooLarge,
    Unavailable,
)

_FAILURES: dict[type[LogError], AppendFailure] = {
    Fenced: AppendFailure.FENCED,
    Ambiguous: AppendFailure.AMBIGUOUS,
    Unavailable: AppendFailure.UNAVAILABLE,
    TooLarge: AppendFailure.TOO_LARGE,
}


def job_failed(job: Job, error: Exception) -> LogFailed | FoundDamage | Broken:
    """The driver's word for what a job has raised. What the log does not raise is our bug."""
    if isinstance(error, Damaged):
        return FoundDamage(job, error)
    if not isinstance(error, LogError):
        return Broken(error, job)
    is_lasting = isinstance(error, Unavailable) and error.is_lasting
    return LogFailed(job, _FAILURES[type(error)], is_lasting, str(error))
