"""Stores full of groups at rest, made without a single call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from coordinator.assignors import Subscription, TopicPartition
from coordinator.assignors.consumer_protocol import (
    Assignment,
    encode_assignment,
    encode_subscription,
)
from coordinator.core.values.ids import ShardId
from coordinator.core.values.records import GroupMetadata, MemberRecord
from coordinator.runtime import codec
from coordinator.shard.placement import shard_of
from coordinator.storage.log import Entry, GroupLog
from coordinator.storage.sqlite import SqliteLog

MEMBERS, SHARDS = 5, 16
"""Members of a group, and shards of a store."""
GENERATION = 7
GROUPS_AN_ENTRY = 500
SESSION_TIMEOUT_MS = 45_000
STATIC_SESSION_TIMEOUT_MS = 30 * 60_000
PROTOCOL = "range"
SUBSCRIPTION = encode_subscription(Subscription(("events",)))


def group_id(number: int) -> str:
    """Group id by number."""
    return f"group-{number}"


def member_id(number: int, group_id: str) -> str:
    """Member id by number; as long as real ones."""
    return f"worker-{number}-{group_id:>36}"


def members(groups: int, each: int = MEMBERS) -> Iterator[tuple[str, str]]:
    """Group and member id of every member of so many groups."""
    for group in map(group_id, range(groups)):
        for number in range(each):
            yield group, member_id(number, group)


def instance_id(number: int) -> str:
    """Instance id by number, for static members."""
    return f"worker-{number}"


def group_record(group_id: str, members: int = MEMBERS, *, static: bool = False) -> GroupMetadata:
    """A group at rest, as a log has it. Static members are given longer to be heard of."""
    records = tuple(
        MemberRecord(
            member_id(number, group_id),
            instance_id(number) if static else None,
            f"worker-{number}",
            "/10.0.0.1",
            60_000,
            STATIC_SESSION_TIMEOUT_MS if static else SESSION_TIMEOUT_MS,
            SUBSCRIPTION,
            encode_assignment(Assignment((TopicPartition("events", number),))),
        )
        for number in range(members)
    )
    leader = records[0].member_id
    return GroupMetadata(
        group_id, GENERATION, "consumer", PROTOCOL, leader, 1_700_000_000_000, records
    )


async def fill(
    folder: Path,
    groups: int,
    members: int = MEMBERS,
    *,
    static: bool = False,
) -> None:
    """A data folder with groups of so many members."""
    log = SqliteLog(folder, shards=SHARDS)
    await write(log, (group_record(group_id(n), members, static=static) for n in range(groups)))
    await log.close()


async def write(log: GroupLog, groups: Iterable[GroupMetadata]) -> None:
    """Append groups, in entries as long as snapshots would make them."""
    by_shard: dict[ShardId, list[bytes]] = {ShardId(number): [] for number in range(SHARDS)}
    for record in groups:
        by_shard[ShardId(shard_of(record.group_id, SHARDS))].append(codec.encode(record))
    for shard, records in by_shard.items():
        fence = await log.fence(shard)
        for sequence, start in enumerate(range(0, len(records), GROUPS_AN_ENTRY), start=1):
            part = tuple(records[start : start + GROUPS_AN_ENTRY])
            await log.append(fence, Entry(sequence, fence.fence_epoch, start, part))
