"""Returns to a Stable group: nothing rebalances, but partitions rested.

What the old process held rests from its last sign of work, which is noted when its successor is
durable, until the successor has asked for its assignment. A rebalance that begins between the two
takes the rests in, and tells them in its own record.

After an outage all members may go on as they were. What they committed until the outage rests
while a commit waits for its answer, or, where none says so, at most until its owner is heard again.
It is told with the second heartbeat of the last of them, or when a rebalance begins before that;
one that begins before all are heard tells the outage itself.

What a single member committed that was silent for less than its session rests at most until it is
heard again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace as with_changes

from coordinator.core.classic import last_work, moves
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.moves import Cost
from coordinator.core.classic.rests import Partition, PartitionReaders, Rest, Rests, TakeOver
from coordinator.core.classic.trace import Trace
from coordinator.core.events import (
    MemberHeardAgain,
    MemberSynced,
    RebalanceCause,
    RebalanceStarted,
    StaticMemberReplaced,
)
from coordinator.core.group import GroupState
from coordinator.core.ids import NO_TIME
from coordinator.core.records import HEARD_AGAIN, GroupMetadata, MemberRecord, StopKnownBy

OUTAGE_MIN_MS = 5_000
"""Shorter outages are not told: a node that is started anew, or a fail-over, takes as long."""
OUTAGE_MAX_MS = 600_000
"""Time without a record that is taken for an outage at most, and else for a group at rest."""
SILENCES_MAX, SILENCES_MS = 8, 10_000
"""Silences that are told in so many milliseconds: a cut network silences thousands of members."""


def replaced(
    group: ClassicGroup, event: StaticMemberReplaced, now_ms: int, read: PartitionReaders
) -> None:
    """Note that the partitions of the process that was replaced rest."""
    stored = _stored(group, event.new_member_id)
    if stored is None:
        return
    record, successor = stored
    # The record of the successor is newer than commits of the process before it.
    last = group.last_rebalance
    since_ms = record.state_changed_at_ms if last is None else last.ended_at_ms
    # The client id of the old process went with its record.
    before = with_changes(successor, member_id=event.old_member_id, client_id="")
    held = with_changes(record, state_changed_at_ms=since_ms, members=(before,))
    if group.taken_over is not None:
        group.taken_over.unheard.pop(event.old_member_id, None)
    trace = _trace(group, event.new_member_id, held, now_ms)
    last_work.replaced(group, trace, event, now_ms, read)


def resumed(
    group: ClassicGroup, event: MemberSynced, now_ms: int, read: PartitionReaders
) -> tuple[Trace, Cost] | None:
    """End the rests of a static member that has its assignment; None: it had none."""
    stored = _stored(group, event.member_id) if group.rests is not None else None
    if stored is None:
        return None
    record, member = stored
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


def heard_again(
    group: ClassicGroup, event: MemberHeardAgain, now_ms: int, read: PartitionReaders
) -> tuple[Trace, Cost] | None:
    """End an outage with its last member that is heard again; None: it goes on, or is none.

    What was committed in the minute before the outage rested since its last commit, at most: the
    members may have worked on. Who joins again is not waited for: that rebalance tells it.
    """
    taken_over = group.taken_over
    if taken_over is None or not _is_told(taken_over):
        return None
    taken_over.heard.discard(event.member_id)
    record = taken_over.unheard.pop(event.member_id, None)
    if record is not None:
        _note_outage(group, taken_over, record, now_ms, read)
        taken_over.heard.add(event.member_id)
    is_over = group.state is GroupState.STABLE and not taken_over.heard
    return end_outage(group, now_ms) if is_over else None


def end_outage(group: ClassicGroup, now_ms: int) -> tuple[Trace, Cost] | None:
    """Tell an outage all of whose members were heard again; None: there is none."""
    taken_over = group.taken_over
    if taken_over is None or taken_over.unheard or not taken_over.rests:
        return None
    rests = taken_over.rests
    for partition, rest in rests.items():
        rest.latest_ms = rest.resumed_ms
        if partition in taken_over.waited:
            stopped_ms, rest.resumed_ms = taken_over.waited[partition]
            rest.earliest_ms = rest.latest_ms = max(stopped_ms, rest.earliest_ms)
            rest.known_by = StopKnownBy.SAID
    group.taken_over = None
    started = RebalanceStarted(
        group.group_id, RebalanceCause.COORDINATOR_RETURNED, group.generation, "", "", ""
    )
    trace = _begin(group, started, group.committed, now_ms)
    trace.started_at_ms = min(rest.earliest_ms for rest in rests.values())
    trace.taken_over = taken_over
    trace.synced = dict.fromkeys(group.members, now_ms)
    return trace, _cost_of(group, trace, now_ms, rests)


def silent(
    group: ClassicGroup, event: MemberHeardAgain, now_ms: int, read: PartitionReaders
) -> tuple[Trace, Cost] | None:
    """End the silence of a member; None: it committed nothing before, or many were silent."""
    record, told = group.committed, group.journal[-SILENCES_MAX:]
    if len(told) == SILENCES_MAX and all(
        earlier.cause == HEARD_AGAIN and now_ms - earlier.ended_at_ms < SILENCES_MS
        for earlier in told
    ):
        return None
    stored = [m for m in record.members if m.member_id == event.member_id] if record else []
    if group.state is not GroupState.STABLE or not stored:
        return None
    heard_ms, kind = event.last_heard_ms, StopKnownBy.SILENT
    rests = {
        partition: rest
        for partition, rest in _committed(group, stored[0], heard_ms, kind, read)
        if partition not in (group.rests.of if group.rests is not None else {})
    }
    if not rests:
        return None
    for rest in rests.values():
        rest.earliest_ms, rest.latest_ms = heard_ms, now_ms
    cause = RebalanceCause.MEMBER_HEARD_AGAIN
    trace = _trace(group, event.member_id, group.committed, now_ms, cause)
    trace.started_at_ms, trace.synced[event.member_id] = heard_ms, now_ms
    return trace, _cost_of(group, trace, now_ms, rests)


def _cost_of(
    group: ClassicGroup, trace: Trace, now_ms: int, rests: Mapping[Partition, Rest]
) -> Cost:
    """End rests whose owners go on, beside those that a cooperative rebalance has left."""
    group.rests = group.rests or Rests()
    group.rests.of.update(rests)
    held = {partition: (rest.owner, rest.member_id) for partition, rest in rests.items()}
    return moves.cost_of_return(group, trace, now_ms, held)


def _note_outage(
    group: ClassicGroup,
    taken_over: TakeOver,
    record: MemberRecord,
    now_ms: int,
    read: PartitionReaders,
) -> None:
    """Note what a member could not commit while the group had no coordinator."""
    rests, kind = taken_over.rests, StopKnownBy.NO_COORDINATOR
    for partition, rest in _committed(group, record, taken_over.newest_record_ms, kind, read):
        if len(rests) < last_work.OWNED_MAX:
            rest.resumed_ms = now_ms
            rests[partition] = rest


def _committed(
    group: ClassicGroup,
    record: MemberRecord,
    heard_ms: int,
    kind: StopKnownBy,
    read: PartitionReaders,
) -> Iterator[tuple[Partition, Rest]]:
    """Partitions of a member that had rows: it committed them in the minute before a time."""
    name, member_id = last_work.owner_of(record)
    since_ms = max(0, heard_ms - last_work.DRAIN_MAX_MS)
    for partition in read.assigned(record.assignment) or ():
        committed_ms = last_work.committed_ms(group, group.committed, partition)
        if committed_ms >= since_ms:
            yield partition, Rest(name, member_id, record.client_id, committed_ms, NO_TIME, kind)


def _is_told(taken_over: TakeOver) -> bool:
    """True if the group had no coordinator for so long that it is told."""
    away_ms = taken_over.at_ms - taken_over.newest_record_ms
    return OUTAGE_MIN_MS <= away_ms <= OUTAGE_MAX_MS


def _stored(group: ClassicGroup, member_id: str) -> tuple[GroupMetadata, MemberRecord] | None:
    """The group's record and a static member's part of it; None: the group is not Stable."""
    record = group.committed
    if record is None or group.state is not GroupState.STABLE:
        return None
    for member in record.members:
        if member.member_id == member_id and member.instance_id is not None:
            return record, member
    return None


def _trace(
    group: ClassicGroup,
    member_id: str,
    before: GroupMetadata | None,
    now_ms: int,
    cause: RebalanceCause = RebalanceCause.STATIC_MEMBER_RETURNED,
) -> Trace:
    member = group.members[member_id]
    started = RebalanceStarted(
        group.group_id,
        cause,
        group.generation,
        member_id,
        member.client_id,
        member.client_host,
    )
    trace = _begin(group, started, before, now_ms)
    trace.taken_over = last_work.outage_before(group, now_ms)
    return trace


def _begin(
    group: ClassicGroup, started: RebalanceStarted, before: GroupMetadata | None, now_ms: int
) -> Trace:
    trace = Trace.begin(started, now_ms, was_initial=False, before=before, rests=None)
    trace.protocol = group.protocol_name or ""
    return trace
