"""Expiration of offsets, and removal of groups that are left empty.

What expires is decided by the node's clock, and cannot be taken back. A clock that jumps while a
node runs does not move the shard's; a node that is started with its clock a day ahead would delete
what has a day left. So nothing expires in the first hour after a load, and what would is logged.

Source: KIP-211; Kafka `ClassicGroup.offsetExpirationCondition`.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.core.config import GroupConfig
from coordinator.core.group import CONSUMER_PROTOCOL_TYPE, Group, GroupState
from coordinator.core.step import Step
from coordinator.core.values.commands import NoFollowUp
from coordinator.core.values.events import ExpirationHeld, GroupRemoved, OffsetsExpired
from coordinator.core.values.records import GroupDeleted, OffsetCommitted, OffsetDeleted, Record

HELD_AFTER_LOAD_MS = 3_600_000
"""Time after a load in which nothing expires, or the retention if that is shorter."""


def expire_offsets(groups: Iterable[Group], step: Step, *, loaded_at_ms: int) -> None:
    """Delete expired offsets, and each Empty group that is left with nothing.

    Args:
        loaded_at_ms: when the shard was loaded; soon after it, nothing is deleted that has a time.
    """
    until_ms = loaded_at_ms + min(HELD_AFTER_LOAD_MS, step.config.offsets_retention_ms)
    held: dict[str, int] = {}
    for group in groups:
        expired = _expired(group, step.now_ms, step.config)
        if step.now_ms < until_ms and (expired or group.is_policy_stored or group.documents):
            if expired:
                held[group.group_id] = len(expired)
            continue
        doomed: list[Record] = [OffsetDeleted(group.group_id, t, p) for t, p in expired]
        if _is_left_with_nothing(group, len(expired), step.now_ms, step.config):
            group.deletions += 1
            doomed.append(GroupDeleted(group.group_id))
            step.out.note(GroupRemoved(group.group_id))
        if expired:
            step.out.note(OffsetsExpired(group.group_id, len(expired)))
        if doomed:
            step.out.persist(doomed, NoFollowUp(group.group_id))
    if held:
        step.out.note(ExpirationHeld(next(iter(held)), len(held), sum(held.values()), until_ms))


def _is_left_with_nothing(group: Group, expired: int, now_ms: int, config: GroupConfig) -> bool:
    """True if an Empty group has no offsets; a policy and documents outlive it as those would."""
    empty_ms = now_ms - group.state_changed_at_ms
    return (
        group.state is GroupState.EMPTY
        and group.has_no_members
        and not group.is_awaited
        and not group.deletions
        and not group.pending_offsets
        and len(group.offsets) == expired
        and not group.document_writes
        and (
            not (group.is_policy_stored or group.documents)
            or empty_ms >= config.offsets_retention_ms
        )
    )


def _expired(group: Group, now_ms: int, config: GroupConfig) -> list[tuple[str, int]]:
    """Partitions whose offsets have outlived their retention.

    The clock of a group that has had members starts when it becomes Empty; a partition
    that a live consumer group no longer reads, and one of a group that never had
    members, ages from its commit.
    """
    expired = []
    for partition, stored in group.offsets.items():
        if partition in group.pending_offsets:
            continue
        if stored.expires_at_ms is not None:
            if now_ms >= stored.expires_at_ms:
                expired.append(partition)
            continue
        base_ms = _retention_starts_ms(group, stored)
        if base_ms is not None and now_ms - base_ms >= config.offsets_retention_ms:
            expired.append(partition)
    return expired


def _retention_starts_ms(group: Group, stored: OffsetCommitted) -> int | None:
    """Return the start of an offset's retention; None while it does not expire."""
    if group.protocol_type is None:
        return stored.committed_at_ms
    if group.state is GroupState.EMPTY:
        return group.state_changed_at_ms
    if group.state is GroupState.STABLE and group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        if not group.is_subscribed(stored.topic):
            return stored.committed_at_ms
    return None
