"""Failures of jobs as inputs of a shard's driver, the same for every host."""

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
    """Return the input that tells the driver of a job's exception; `Broken` for any bug of ours."""
    if isinstance(error, Damaged):
        return FoundDamage(job, error)
    if not isinstance(error, LogError):
        return Broken(error, job)
    is_lasting = isinstance(error, Unavailable) and error.is_lasting
    return LogFailed(job, _FAILURES[type(error)], is_lasting, str(error))
