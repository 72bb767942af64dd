"""`coordinator groups reset-offsets`: plan new offsets (dry run); `--execute` commits them.

Names and options are those of Kafka's `kafka-consumer-groups.sh`. Groups with members are refused.
The new offsets are committed atomically, and only if the old ones are still those of the plan.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from coordinator.assignors import TopicPartition
from coordinator.cli.log_offsets import LogOffsets
from coordinator.client.admin import GroupAdmin
from coordinator.client.commit_metadata import of_reset


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The new position: exactly one field is set. `when` has a time zone."""

    earliest: bool = False
    latest: bool = False
    offset: int | None = None
    when: datetime | None = None
    shift_by: int | None = None
    file: Path | None = None


def plan(
    current: dict[TopicPartition, int],
    topics: list[str],
    target: Target,
    logs: LogOffsets,
) -> dict[TopicPartition, int]:
    """The new offset of each partition.

    Args:
        current: the committed offsets.
        topics: TOPIC or TOPIC:0,1,2; none: every partition with a committed offset.
    Raises:
        LookupError: a partition, or the end of its log, is unknown.
        ValueError: an option cannot be parsed.
    """
    if target.file is not None:
        return _from_file(target.file)
    partitions = chosen(topics, set(current) | set(logs.rows))
    if not partitions:
        raise LookupError("no partition is selected: name some as --topic TOPIC:0,1,2")
    return {p: _clamp(_new(p, current, target, logs), p, logs) for p in partitions}


def execute(
    admin: GroupAdmin, group: str, new: dict[TopicPartition, int], seen: dict[TopicPartition, int]
) -> None:
    """Commit the plan if no offset has changed since it was made.

    The offsets say that they were set: a query that goes on from its checkpoint must not take
    them for those it began its last batch at. What readers had noted beside them, such as which
    files they had read, goes.

    Raises:
        LookupError: the group has members, or an offset has moved.
    """
    state = admin.describe_group(group).group_state
    if state not in ("Empty", "Dead"):
        raise LookupError(
            f"Assignments can only be reset if the group '{group}' is inactive, "
            f"but the current state is {state}."
        )
    told = {p: of_reset(datetime.now(UTC)) for p in new}
    refused = admin.commit(group, new, expected={p: seen.get(p, -1) for p in new}, metadata=told)
    if refused:
        raise LookupError(f"nothing was reset: {refused}")


def _new(
    partition: TopicPartition, current: dict[TopicPartition, int], target: Target, logs: LogOffsets
) -> int:
    if target.earliest:
        return logs.earliest(partition)
    if target.latest:
        return logs.latest(partition)
    if target.offset is not None:
        return target.offset
    if target.when is not None:
        return logs.at(partition, round(target.when.timestamp() * 1000))
    assert target.shift_by is not None
    if partition not in current:
        raise LookupError(f"{partition.topic}-{partition.partition} has no offset to shift")
    return current[partition] + target.shift_by


def _clamp(offset: int, partition: TopicPartition, logs: LogOffsets) -> int:
    """The offset nearest to `offset` within the log, as far as its ends are known."""
    offset = max(offset, logs.earliest(partition))
    return min(offset, logs.latest(partition)) if partition in logs.rows else offset


def chosen(topics: list[str], known: set[TopicPartition]) -> list[TopicPartition]:
    """The partitions that TOPIC or TOPIC:0,1,2 select; without topics, all known ones.

    Raises:
        ValueError: a partition is not a number.
    """
    if not topics:
        return sorted(known)
    meant: set[TopicPartition] = set()
    for text in topics:
        topic, _, numbers = text.partition(":")
        if numbers:
            meant |= {TopicPartition(topic, int(number)) for number in numbers.split(",")}
        else:
            meant |= {partition for partition in known if partition.topic == topic}
    return sorted(meant)


def _from_file(path: Path) -> dict[TopicPartition, int]:
    """Offsets from lines of TOPIC,PARTITION,OFFSET, the format of Kafka's tool."""
    with path.open(newline="") as lines:
        rows = [row for row in csv.reader(lines) if row]
    try:
        return {TopicPartition(t, int(p)): int(o) for t, p, o in rows}
    except ValueError as error:
        raise ValueError(f"{path}: each line is TOPIC,PARTITION,OFFSET") from error
