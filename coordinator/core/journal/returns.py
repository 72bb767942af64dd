"""Returns to a Stable group: nothing rebalances, but partitions were idle.

Partitions of a static member's old process are idle from its last sign of work, which is noted when
its successor is durable, until the successor has asked for its assignment. A rebalance that begins
between the two counts these idle spans in its own record.

After an outage all members may go on as they were. Partitions that they committed until the outage
are idle while a commit waits for its answer, or, where none says so, at most until their owner is
seen again. The outage is journaled with the second heartbeat of the last member, or when a
rebalance begins before that; one that begins before all members are seen counts the outage itself.

Partitions of a single member that was silent for less than its session are idle at most until it is
seen again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace as with_changes

from coordinator.core.classic.account import ClassicIdleSpan, FailOver, IdleSpans, Trace
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.group import GroupState
from coordinator.core.journal import last_work, moves
from coordinator.core.journal.moves import Cost
from coordinator.core.payloads import PayloadReader
from coordinator.core.values.events import (
    MemberSeenAgain,
    MemberSynced,
    RebalanceCause,
    RebalanceStarted,
    StaticMemberReplaced,
)
from coordinator.core.values.ids import NO_TIME, TopicPartition
from coordinator.core.values.rebalance_journal import SEEN_AGAIN, StopKnownBy
from coordinator.core.values.records import GroupMetadata, MemberRecord

SILENCES_MAX, SILENCES_MS = 8, 10_000
"""Silences with a record in so many milliseconds: a cut network silences thousands of members."""


def replaced(
    group: ClassicGroup, event: StaticMemberReplaced, now_ms: int, read: PayloadReader
) -> None:
    """Note that the partitions of the process that was replaced are idle."""
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
    if group.account.taken_over is not None:
        group.account.taken_over.unseen.pop(event.old_member_id, None)
    trace = _trace(group, event.new_member_id, held, now_ms)
    last_work.replaced(group, trace, event, now_ms, read)


def resumed(
    group: ClassicGroup, event: MemberSynced, now_ms: int, read: PayloadReader
) -> tuple[Trace, Cost] | None:
    """End the idle spans of a static member that has its assignment; None: it had none."""
    stored = _stored(group, event.member_id) if group.account.idle_spans.of else None
    if stored is None:
        return None
    record, member = stored
    held = with_changes(record, members=(member,))
    trace = _trace(group, event.member_id, held, now_ms)
    trace.synced[event.member_id] = now_ms
    after = last_work.owners(held, read.partitions)
    cost = moves.cost_of_return(group, trace, now_ms, after or {})
    if not cost.unowned_partitions:
        return None
    stops = ((move.stopped_earliest_ms, move.stopped_latest_ms) for move in cost.moves)
    trace.started_at_ms = min(earliest if earliest >= 0 else latest for earliest, latest in stops)
    return trace, cost


def seen_again(
    group: ClassicGroup, event: MemberSeenAgain, now_ms: int, read: PayloadReader
) -> tuple[Trace, Cost] | None:
    """End an outage with its last member that is seen again; None: it goes on, or is none.

    What was committed in the minute before the outage was idle since its last commit, at most: the
    members may have worked on. Who joins again is not waited for: its rebalance counts it.
    """
    taken_over = group.account.taken_over
    if taken_over is None or not taken_over.is_outage:
        return None
    taken_over.seen.discard(event.member_id)
    record = taken_over.unseen.pop(event.member_id, None)
    if record is not None:
        _note_outage(group, taken_over, record, now_ms, read)
        taken_over.seen.add(event.member_id)
    is_over = group.state is GroupState.STABLE and not taken_over.seen
    return end_outage(group, now_ms) if is_over else None


def end_outage(group: ClassicGroup, now_ms: int) -> tuple[Trace, Cost] | None:
    """The record of an outage all of whose members were seen again; None: there is none."""
    taken_over = group.account.taken_over
    if taken_over is None or taken_over.unseen or not taken_over.idle_spans:
        return None
    idle_spans = taken_over.idle_spans
    for partition, idle_span in idle_spans.items():
        idle_span.latest_ms = idle_span.resumed_ms
        if partition in taken_over.waited:
            stopped_ms, idle_span.resumed_ms = taken_over.waited[partition]
            idle_span.earliest_ms = idle_span.latest_ms = max(stopped_ms, idle_span.earliest_ms)
            idle_span.known_by = StopKnownBy.SAID
    group.account.taken_over = None
    started = RebalanceStarted(
        group.group_id, RebalanceCause.COORDINATOR_RETURNED, group.generation, "", "", ""
    )
    trace = _begin(group, started, group.committed, now_ms)
    trace.started_at_ms = min(idle_span.earliest_ms for idle_span in idle_spans.values())
    trace.taken_over = taken_over
    trace.synced = dict.fromkeys(group.members, now_ms)
    return trace, _cost_of(group, trace, now_ms, idle_spans)


def silent(
    group: ClassicGroup, event: MemberSeenAgain, now_ms: int, read: PayloadReader
) -> tuple[Trace, Cost] | None:
    """End the silence of a member; None: it committed nothing before, or many were silent."""
    record, silences = group.committed, group.journal[-SILENCES_MAX:]
    if len(silences) == SILENCES_MAX and all(
        earlier.cause == SEEN_AGAIN and now_ms - earlier.ended_at_ms < SILENCES_MS
        for earlier in silences
    ):
        return None
    stored = [m for m in record.members if m.member_id == event.member_id] if record else []
    if group.state is not GroupState.STABLE or not stored:
        return None
    seen_ms, kind = event.last_seen_ms, StopKnownBy.SILENT
    idle_spans = {
        partition: idle_span
        for partition, idle_span in _committed(group, stored[0], seen_ms, kind, read)
        if partition not in group.account.idle_spans.of
    }
    if not idle_spans:
        return None
    for idle_span in idle_spans.values():
        idle_span.earliest_ms, idle_span.latest_ms = seen_ms, now_ms
    cause = RebalanceCause.MEMBER_SEEN_AGAIN
    trace = _trace(group, event.member_id, group.committed, now_ms, cause)
    trace.started_at_ms, trace.synced[event.member_id] = seen_ms, now_ms
    return trace, _cost_of(group, trace, now_ms, idle_spans)


def _cost_of(
    group: ClassicGroup,
    trace: Trace,
    now_ms: int,
    idle_spans: Mapping[TopicPartition, ClassicIdleSpan],
) -> Cost:
    """End idle spans whose owners go on, beside those that a cooperative rebalance has left."""
    group.account.idle_spans.of.update(idle_spans)
    held = {
        partition: (idle_span.owner, idle_span.member_id)
        for partition, idle_span in idle_spans.items()
    }
    return moves.cost_of_return(group, trace, now_ms, held)


def _note_outage(
    group: ClassicGroup,
    taken_over: FailOver,
    record: MemberRecord,
    now_ms: int,
    read: PayloadReader,
) -> None:
    """Note what a member could not commit while the group had no coordinator."""
    idle_spans, kind = taken_over.idle_spans, StopKnownBy.NO_COORDINATOR
    for partition, idle_span in _committed(group, record, taken_over.newest_record_ms, kind, read):
        if len(idle_spans) < last_work.OWNED_MAX:
            idle_span.resumed_ms = now_ms
            idle_spans[partition] = idle_span


def _committed(
    group: ClassicGroup, record: MemberRecord, seen_ms: int, kind: StopKnownBy, read: PayloadReader
) -> Iterator[tuple[TopicPartition, ClassicIdleSpan]]:
    """Partitions of a member that had rows: it committed them in the minute before a time."""
    name, member_id = last_work.owner_of(record)
    since_ms = max(0, seen_ms - last_work.DRAIN_MAX_MS)
    for partition in read.partitions(record.assignment) or ():
        committed_ms = last_work.committed_ms(group, group.committed, partition)
        if committed_ms >= since_ms:
            yield (
                partition,
                ClassicIdleSpan(name, member_id, record.client_id, committed_ms, NO_TIME, kind),
            )


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
        group.group_id, cause, group.generation, member_id, member.client_id, member.client_host
    )
    trace = _begin(group, started, before, now_ms)
    trace.taken_over = last_work.outage_before(group, now_ms)
    return trace


def _begin(
    group: ClassicGroup, started: RebalanceStarted, before: GroupMetadata | None, now_ms: int
) -> Trace:
    trace = Trace.begin(started, now_ms, was_initial=False, before=before, idle_spans=IdleSpans())
    trace.protocol = group.protocol_name or ""
    return trace
