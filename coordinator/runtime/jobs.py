"""Jobs of a shard's driver, the same for every host: building a shard, and failures as inputs."""

from __future__ import annotations

from coordinator.runtime import codec
from coordinator.shard.effects import Broken, FoundDamage, Job, LogFailed, StandbyShard
from coordinator.shard.followers import TailEntry
from coordinator.shard.inputs import AppendFailure
from coordinator.shard.shard import Shard
from coordinator.shard.snapshots import SnapshotPolicy
from coordinator.storage.log import (
    Ambiguous,
    Damaged,
    Entry,
    Fenced,
    Loaded,
    LogError,
    LogUnavailable,
    TooLarge,
)

_FAILURES: dict[type[LogError], AppendFailure] = {
    Fenced: AppendFailure.FENCED,
    Ambiguous: AppendFailure.AMBIGUOUS,
    LogUnavailable: AppendFailure.UNAVAILABLE,
    TooLarge: AppendFailure.TOO_LARGE,
}


def build(shard: Shard, loaded: Loaded, now_ms: int) -> StandbyShard:
    """Replay a loaded log into an empty shard. Slow for many groups: call it in a thread."""
    shard.replay(map(codec.decode, loaded.records()), now_ms)
    policy = SnapshotPolicy(
        len(loaded.entries),
        sum(len(record) for entry in loaded.entries for record in entry.records),
        sum(map(len, loaded.snapshot.records)) if loaded.snapshot else 0,
    )
    return StandbyShard(shard, loaded.sequence, loaded.next_offset, policy)


def add_entry(standby: StandbyShard, entry: Entry | TailEntry, now_ms: int) -> None:
    """Apply the next entry, from the store or from the leader of the shard.

    Raises:
        Damaged: the entry does not follow the last one.
    """
    if (entry.sequence, entry.base_offset) != (standby.sequence + 1, standby.next_offset):
        raise Damaged(
            f"entry {entry.sequence} (offset {entry.base_offset}) follows entry {standby.sequence} "
            f"(offset {standby.next_offset})"
        )
    standby.shard.replay(map(codec.decode, entry.records), now_ms)
    standby.sequence, standby.next_offset = entry.sequence, entry.base_offset + len(entry.records)
    standby.policy.appended(sum(map(len, entry.records)))


def job_failed(job: Job, error: Exception) -> LogFailed | FoundDamage | Broken:
    """Return the input that tells the driver of a job's exception; `Broken` for any bug of ours."""
    if isinstance(error, Damaged):
        return FoundDamage(job, error)
    if not isinstance(error, LogError):
        return Broken(error, job)
    is_lasting = isinstance(error, LogUnavailable) and error.is_lasting
    return LogFailed(job, _FAILURES[type(error)], is_lasting, str(error))
