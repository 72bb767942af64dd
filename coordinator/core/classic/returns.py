"""Returns of static members to a Stable group: nothing rebalances, but their partitions rested.

What the old process held rests from its last sign of work, which is noted when its successor is
durable, until the successor has asked for its assignment. A rebalance that begins between the two
takes the rests in, and tells them in its own record.
"""

from __future__ import annotations

from dataclasses import replace as with_changes

from coordinator.core.classic import last_work, moves
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.moves import Cost
from coordinator.core.classic.rests import PartitionReaders
from coordinator.core.classic.trace import Trace
from coordinator.core.events import (
    MemberSynced,
    RebalanceCause,
    RebalanceStarted,
    StaticMemberReplaced,
)
from coordinator.core.group import GroupState
from coordinator.core.records import GroupMetadata, MemberRecord


def replaced(
    group: ClassicGroup, event: StaticMemberReplaced, now_ms: int, read: PartitionReaders
) -> None:
    """Note that the partitions of the process that was replaced rest."""
    found = _stored(group, event.new_member_id)
    if found is None:
        return
    record, successor = found
    # The record of the successor is newer than commits of the process before it.
    last = group.last_rebalance
    since_ms = record.state_changed_at_ms if last is None else last.ended_at_ms
    # The client id of the old process went with its record.
    before = with_changes(successor, member_id=event.old_member_id, client_id="")
    held = with_changes(record, state_changed_at_ms=since_ms, members=(before,))
    trace = _trace(group, event.new_member_id, held, now_ms)
    last_work.replaced(group, trace, event, now_ms, read)


def resumed(
    group: ClassicGroup, event: MemberSynced, now_ms: int, read: PartitionReaders
) -> tuple[Trace, Cost] | None:
    """End the rests of a static member that has its assignment; None: it had none."""
    found = _stored(group, event.member_id) if group.rests is not None else None
    if found is None:
        return None
    record, member = found
    held = with_changes(record, members=(member,))
    trace = _trace(group, event.member_id, held, now_ms)
    trace.synced[event.member_id] = now_ms
    after = last_work.owners(held, read.assigned)
    cost = moves.cost_of_return(group, trace, now_ms, after or {})
    if not cost.unowned_partitions:
        return None
    stops = ((move.stopped_earliest_ms, move.stopped_latest_ms) for move in cost.moves)
    trace.started_at_ms = min(earliest if earliest >= 0 else latest for earliest, latest in stops)
    return trace, cost


def _stored(group: ClassicGroup, member_id: str) -> tuple[GroupMetadata, MemberRecord] | None:
    """The group's record and a static member's part of it; None: the group is not Stable."""
    record = group.committed
    if record is None or group.state is not GroupState.STABLE:
        return None
    for member in record.members:
        if member.member_id == member_id and member.instance_id is not None:
            return record, member
    return None


def _trace(group: ClassicGroup, member_id: str, before: GroupMetadata, now_ms: int) -> Trace:
    member = group.members[member_id]
    started = RebalanceStarted(
        group.group_id,
        RebalanceCause.STATIC_MEMBER_RETURNED,
        group.generation,
        member_id,
        member.client_id,
        member.client_host,
    )
    trace = Trace.begin(started, now_ms, was_initial=False, before=before, rests=None)
    trace.protocol = group.protocol_name or ""
    trace.taken_over = last_work.outage_before(group, now_ms)
    return trace
