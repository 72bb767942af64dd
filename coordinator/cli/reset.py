"""`coordinator groups reset-offsets`: plan new offsets (dry run); `--execute` commits them.

Names and options are those of Kafka's `kafka-consumer-groups.sh`. Groups with members are refused.
The new offsets are committed atomically, and only if the old ones are still those of the plan.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from coordinator.assignors import TopicPartition
from coordinator.cli.log_offsets import OFFSET_MAX, LogOffsets, number
from coordinator.cli.partitions import PARTITION_MAX, Selection, chosen
from coordinator.cli.refusals import advice_of
from coordinator.commit_metadata import of_reset
from coordinator.core.values.errors import ErrorCode
from coordinator.operator.admin import GroupAdmin

NAMED_MAX = 5
"""Partitions that a sentence names; of more it gives the number."""
_PLAIN = re.compile("[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The new position: exactly one field is set. `at_ms`: epoch milliseconds."""

    earliest: bool = False
    latest: bool = False
    current: bool = False
    offset: int | None = None
    at_ms: int | None = None
    shift_by: int | None = None
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """New offsets, and sentences about those that are not what was asked for."""

    offsets: dict[TopicPartition, int]
    notes: Sequence[str] = ()


def plan(
    current: Mapping[TopicPartition, int],
    selections: Sequence[Selection],
    target: Target,
    logs: LogOffsets,
) -> ResetPlan:
    """The new offset of each partition, within its log as far as that is known.

    Args:
        current: the committed offsets.
        selections: none: every partition with a committed offset, or in `logs`.
    Raises:
        LookupError: a partition, or the start or end of its log, is unknown.
        ValueError: an offset is none, or the file cannot be parsed.
    """
    if target.file is not None:
        return ResetPlan(_from_file(target.file))
    partitions = chosen(selections, current.keys() | logs.rows.keys())
    if not partitions:
        raise LookupError("The group has no committed offsets: name partitions by --topic t:0-3.")
    wanted = {p: _wanted(p, current, target, logs) for p in partitions}
    new = {p: _within(offset, p, logs) for p, offset in wanted.items()}
    moved = [p for p in partitions if new[p] != wanted[p]]
    notes = [
        f"{p}: {wanted[p]} is outside of the log, so {new[p]} is used." for p in moved[:NAMED_MAX]
    ]
    if len(moved) > NAMED_MAX:
        notes.append(f"So it is with {len(moved) - NAMED_MAX} more partitions.")
    return ResetPlan(new, notes)


def live_warning(group_id: str, state: str, members: int) -> str | None:
    """The sentence about a group with members, whose offsets cannot be reset; None without."""
    if state in ("Empty", "Dead"):
        return None
    count = "1 member" if members == 1 else f"{members} members"
    return (
        f"Assignments can only be reset if the group '{group_id}' is inactive, but the current "
        f"state is {state}, with {count}: stop them first."
    )


def execute(
    admin: GroupAdmin,
    group: str,
    new: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
) -> None:
    """Commit the plan if no offset has changed since it was made.

    The offsets say that they were set: a query that goes on from its checkpoint must not take
    them for those it began its last batch at. What readers had noted beside them, such as which
    files they had read, goes.

    Raises:
        LookupError: a member has joined, or an offset has moved.
    """
    resets = {p: of_reset(datetime.now(UTC)) for p in new}
    refused = admin.commit(
        group,
        new,
        expected={p: committed.get(p, -1) for p in new},
        metadata=resets,
        requires_empty=True,
    )
    if not refused:
        return
    if ErrorCode.OFFSET_MISMATCH.name in refused.values():
        raise LookupError("Nothing was reset: an offset has changed since it was read; try again.")
    why = "; ".join(advice_of(code) for code in sorted(set(refused.values())))
    raise LookupError(f"Nothing was reset: {why}.")


def as_csv(offsets: Mapping[TopicPartition, int]) -> str:
    """Lines of TOPIC,PARTITION,OFFSET, which `--from-file` and Kafka's tool read.

    Names that Kafka would refuse for topics are quoted: the `csv` module leaves `\\r` as it is.
    """
    lines = []
    for key, offset in offsets.items():
        is_plain = _PLAIN.fullmatch(key.topic)
        topic = key.topic if is_plain else '"' + key.topic.replace('"', '""') + '"'
        lines.append(f"{topic},{key.partition},{offset}\n")
    return "".join(lines)


# --- Inside -------------------------------------------------------------------------------------


def _wanted(
    partition: TopicPartition,
    current: Mapping[TopicPartition, int],
    target: Target,
    logs: LogOffsets,
) -> int:
    if target.earliest:
        return logs.earliest(partition)
    if target.latest:
        return logs.latest(partition)
    if target.offset is not None:
        return target.offset
    if target.at_ms is not None:
        return logs.at(partition, target.at_ms)
    if partition not in current:
        raise LookupError(f"{partition} has no committed offset: give one by --to-offset")
    return current[partition] + (target.shift_by or 0)


def _within(offset: int, partition: TopicPartition, logs: LogOffsets) -> int:
    """The offset nearest to `offset` within the log, if that is known."""
    if partition in logs.rows:
        return min(max(offset, logs.earliest(partition)), logs.latest(partition))
    if not 0 <= offset <= OFFSET_MAX:
        raise ValueError(
            f"{partition}: {offset} is no offset; with --log-offsets the nearest one "
            "within the log is used"
        )
    return offset


def _from_file(path: Path) -> dict[TopicPartition, int]:
    """Offsets from lines of TOPIC,PARTITION,OFFSET, the format of Kafka's tool."""
    offsets: dict[TopicPartition, int] = {}
    with path.open(newline="", encoding="utf-8-sig") as lines:
        rows = csv.reader(lines)
        try:
            for row in filter(None, rows):
                key, offset = _line(row)
                if key in offsets:
                    raise ValueError(f"{key} is listed twice")
                offsets[key] = offset
        except UnicodeError:
            raise
        except (csv.Error, ValueError) as error:
            raise ValueError(
                f"{path}, line {rows.line_num}: {error}; each line is TOPIC,PARTITION,OFFSET"
            ) from error
    if not offsets:
        raise ValueError(f"{path} lists no partition: each line is TOPIC,PARTITION,OFFSET")
    return offsets


def _line(row: Sequence[str]) -> tuple[TopicPartition, int]:
    if len(row) != 3 or not row[0]:
        raise ValueError(f"there are {len(row)} fields" if row[0] else "there is no topic")
    return TopicPartition(row[0], number(row[1], PARTITION_MAX)), number(row[2])
