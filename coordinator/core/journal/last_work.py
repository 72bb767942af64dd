"""Times at which partitions were last worked on, and at which work on them resumed.

A coordinator sees calls, not work. What it knows of the moment in which the owner of a partition
stopped depends on how it stopped:

    how it stopped          at the earliest                     at the latest
    died, or was paused     when it was last seen              when its next heartbeat was due
    left                    when it left, or committed it last, when it left
                            if it committed others later
    not seen since an outage                a session before its last record    as above
    gave it up by itself                    when it committed it last, else     when it said so
                                            when it was given it
    was removed, but lives  when it was told of the rebalance   when its next heartbeat is due
    joined without it       when it was told of the rebalance   when it joined
    it was taken away       when that assignment was durable    when it joined without it
    says it after an outage when its commit, or its session, had no answer: both are that moment

A commit of the partition by its owner after the earliest time raises that time. The metadata of a
consumer list the partitions that it holds as it joins; with an eager assignor there are none. Where
metadata cannot be parsed, the members of a protocol that calls itself cooperative hold everything.

An idle span ends when the assignment that gives the partition to somebody is durable: members that
have asked for theirs by then are answered at once. They are soft state: a fail-over forgets them.

Source: ours; KIP-429 for the partitions that a member holds.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from coordinator.core.classic.account import ClassicIdleSpan, FailOver, IdleSpans, Trace
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.member import LATENESS
from coordinator.core.payloads import PartitionReader, PayloadReader
from coordinator.core.values.events import (
    NO_PROGRESS,
    EvictionCause,
    MemberEvicted,
    MemberJoined,
    MemberLeft,
    StaticMemberReplaced,
)
from coordinator.core.values.ids import NO_TIME, TopicPartition
from coordinator.core.values.rebalance_journal import StopKnownBy
from coordinator.core.values.records import GroupMetadata, MemberRecord

COOPERATIVE = "cooperative"
"""Part of the names of protocols whose members keep working during a rebalance (KIP-429)."""
OWNED_MAX = 50_000
"""Partitions up to which owners are compared with the previous generation, which takes 200 ms. For
more, nothing is known of moves and idle spans. No more idle spans than these are remembered, the
latest."""

DRAIN_MAX_MS = 60_000
"""Age of a commit above which its partition is taken to have had no rows since, not no owner."""
GAVE_UP_MAX_MS = 600_000
"""Longest time that a program which does not poll is taken to have done nothing."""
SESSION_SLACK_MS = 5_000
"""Time beyond a session within which members that an outage has cost are found silent."""

Span = tuple[int, int, StopKnownBy]
"""Earliest time, latest time, and how they are known."""


class ResumedPartition(NamedTuple):
    """An idle span that has ended, and the member that works on the partition now.

    `is_fetched`: it was answered at `at_ms`, when its assignment was durable. A tuple, since a
    large group makes many at once.
    """

    partition: TopicPartition
    idle_span: ClassicIdleSpan
    member_id: str
    has_moved: bool
    is_fetched: bool
    at_ms: int

    @property
    def idle_ms(self) -> tuple[int, int]:
        """Shortest and longest time in which nobody worked on it; -1: there is no longest."""
        idle_span = self.idle_span
        shortest_ms = 0 if idle_span.is_open else max(0, self.at_ms - idle_span.latest_ms)
        if idle_span.earliest_ms == NO_TIME:
            return shortest_ms, NO_TIME
        return shortest_ms, max(0, self.at_ms - idle_span.earliest_ms)


def rejoined(
    group: ClassicGroup, trace: Trace, event: MemberJoined, now_ms: int, read: PayloadReader
) -> None:
    """Note the partitions that a member does not hold any more as it joins again."""
    member_id = event.member_id
    member = group.members.get(member_id)
    if member is None or member.is_new:
        return
    ago_ms = {(stopped.topic, stopped.partition): stopped.ago_ms for stopped in event.stopped}
    owned = _claimed(member.protocols[0][1] if member.protocols else b"", trace, read.owned)
    notified_ms = trace.reported_at_ms.setdefault(member_id, NO_TIME)
    is_unseen = trace.taken_over is not None and member.last_beat_ms == NO_TIME
    has_to_stop = not _is_cooperative(trace) and trace.started.member_id != member_id
    for partition, idle_span in _held(group, trace, member_id, read.partitions).items():
        is_kept = (
            idle_span.known_by is not StopKnownBy.TAKEN_AWAY
            if owned is None
            else partition in owned
        )
        if is_kept or not idle_span.is_open:
            continue
        latest_ms = now_ms
        if partition in ago_ms:
            idle_span.known_by = StopKnownBy.SAID
            idle_span.earliest_ms = latest_ms = _said_ms(trace, ago_ms[partition], now_ms)
        elif idle_span.known_by is not StopKnownBy.TAKEN_AWAY:
            idle_span.known_by = StopKnownBy.REJOINED
            if is_unseen and notified_ms == NO_TIME:
                idle_span.known_by = StopKnownBy.NOT_SEEN
            elif has_to_stop:  # With all its partitions, whoever began the rebalance.
                idle_span.earliest_ms = now_ms if notified_ms == NO_TIME else notified_ms
            else:
                # It has stopped by itself; others of its partitions may have kept it until now.
                idle_span.known_by = StopKnownBy.GAVE_UP
                longest_ms = max(member.rebalance_timeout_ms, DRAIN_MAX_MS)
                idle_span.earliest_ms = _gave_up_ms(group, trace, partition, longest_ms, now_ms)
        _close(group, trace, partition, idle_span, latest_ms)


def outage_before(group: ClassicGroup, now_ms: int) -> FailOver | None:
    """The outage that may have to do with a rebalance that begins now, within a session of it."""
    taken_over = group.account.taken_over
    if taken_over is None:
        return None
    if now_ms - taken_over.at_ms > taken_over.session_ms + SESSION_SLACK_MS:
        group.account.taken_over = None
    return group.account.taken_over


def gone(
    group: ClassicGroup,
    trace: Trace,
    event: MemberEvicted | MemberLeft,
    now_ms: int,
    read: PayloadReader,
) -> None:
    """Note the partitions of a member that was removed or has left."""
    earliest_ms, latest_ms, known_by = _end_of(event, trace, now_ms)
    held = _held(group, trace, event.member_id, read.partitions)
    drained = _drained(group, trace, held, now_ms) if known_by is StopKnownBy.LEFT else {}
    if isinstance(event, MemberLeft) and event.reason.startswith(NO_PROGRESS):
        known_by = StopKnownBy.GAVE_UP
        drained = {p: _gave_up_ms(group, trace, p, GAVE_UP_MAX_MS, now_ms) for p in held}
    for partition, idle_span in held.items():
        if not idle_span.is_open:
            continue
        was_draining = known_by is StopKnownBy.LEFT and idle_span.known_by is StopKnownBy.TAKEN_AWAY
        if not was_draining:
            idle_span.earliest_ms = drained.get(partition, earliest_ms)
        idle_span.known_by = known_by
        _close(group, trace, partition, idle_span, latest_ms)


def replaced(
    group: ClassicGroup, trace: Trace, event: StaticMemberReplaced, now_ms: int, read: PayloadReader
) -> None:
    """Note that the process of a static member has ended before its successor joined."""
    earliest_ms, latest_ms, known_by = _end_of_silent(event, now_ms)
    for partition, idle_span in _held(group, trace, event.old_member_id, read.partitions).items():
        if idle_span.is_open:
            idle_span.earliest_ms, idle_span.known_by = earliest_ms, known_by
            _close(group, trace, partition, idle_span, latest_ms)


def taken_away(
    group: ClassicGroup,
    now_ms: int,
    before: Mapping[TopicPartition, tuple[str, str]],
    after: Container[TopicPartition],
) -> int:
    """Note and count the partitions that the new assignment takes away from members that go on."""
    taken = 0
    for partition, (name, member_id) in before.items():
        known = group.account.idle_spans.of
        if partition in after or partition in known or member_id not in group.members:
            continue
        client_id = group.members[member_id].client_id
        idle_span = ClassicIdleSpan(
            name, member_id, client_id, now_ms, NO_TIME, StopKnownBy.TAKEN_AWAY
        )
        group.account.idle_spans.of[partition] = idle_span
        taken += 1
    return taken


def resumed(
    group: ClassicGroup, trace: Trace, now_ms: int, after: Mapping[TopicPartition, tuple[str, str]]
) -> Iterator[ResumedPartition]:
    """End the idle spans of the partitions that the new assignment gives to somebody."""
    idle_spans = group.account.idle_spans.of
    for partition, (name, member_id) in after.items():
        idle_span = idle_spans.pop(partition, None)
        if idle_span is None:
            continue
        has_moved = idle_span.owner != name
        if has_moved or not idle_span.is_open:  # Else its owner has never stopped.
            at_ms = now_ms if idle_span.resumed_ms == NO_TIME else idle_span.resumed_ms
            yield ResumedPartition(
                partition, idle_span, member_id, has_moved, member_id in trace.synced, at_ms
            )
    for partition in list(islice(idle_spans, max(0, len(idle_spans) - OWNED_MAX))):
        del idle_spans[partition]
    if not idle_spans:
        group.account.idle_spans = IdleSpans()


def owners(
    record: GroupMetadata | None, read_assignment: PartitionReader
) -> dict[TopicPartition, tuple[str, str]] | None:
    """Return each partition's owner: instance id (or member id), and member id."""
    owners: dict[TopicPartition, tuple[str, str]] = {}
    for member in record.members if record is not None else ():
        partitions = read_assignment(member.assignment)
        if partitions is None:
            return None
        partitions = tuple(partitions)
        if len(owners) + len(partitions) > OWNED_MAX:
            return None
        owners.update(dict.fromkeys(partitions, owner_of(member)))
    return owners


def owner_of(member: MemberRecord) -> tuple[str, str]:
    """Name that survives a restart of a static member, and the member id."""
    return member.instance_id or member.member_id, member.member_id


def committed_ms(
    group: ClassicGroup, record: GroupMetadata | None, partition: TopicPartition
) -> int:
    """Time of the last commit of a partition in its owner's generation; -1 if there is none."""
    stored = group.offsets.get(partition)
    if stored is None or record is None:
        return NO_TIME
    is_of_owner = stored.committed_at_ms > record.state_changed_at_ms
    return stored.committed_at_ms if is_of_owner else NO_TIME


# --- Inside ---------------------------------------------------------------------------------


def _held(
    group: ClassicGroup, trace: Trace, member_id: str, read_assignment: PartitionReader
) -> dict[TopicPartition, ClassicIdleSpan]:
    """Idle spans of what a member held when the rebalance began, open where it may work."""
    held = trace.held.setdefault(member_id, {})
    stored = trace.stored.pop(member_id, None)
    if stored is None:
        return held
    known = group.account.idle_spans.of
    name, kind = owner_of(stored)[0], StopKnownBy.REJOINED
    for partition in read_assignment(stored.assignment) or ():
        if partition not in known:
            held[partition] = ClassicIdleSpan(
                name, member_id, stored.client_id, NO_TIME, NO_TIME, kind
            )
    return held


def _close(
    group: ClassicGroup,
    trace: Trace,
    partition: TopicPartition,
    idle_span: ClassicIdleSpan,
    latest_ms: int,
) -> None:
    """The owner has stopped by `latest_ms`; a commit shows that it still worked."""
    idle_span.latest_ms = latest_ms
    committed_ms = _committed_ms(group, trace, partition)
    if idle_span.known_by is StopKnownBy.NOT_SEEN and trace.taken_over is not None:
        # It would have been removed had it been silent for longer.
        idle_span.earliest_ms = trace.taken_over.newest_record_ms - trace.taken_over.session_ms
    if idle_span.earliest_ms != NO_TIME or committed_ms != NO_TIME:
        idle_span.earliest_ms = min(max(idle_span.earliest_ms, committed_ms), latest_ms)
    group.account.idle_spans.of[partition] = idle_span


def _drained(
    group: ClassicGroup, trace: Trace, held: Iterable[TopicPartition], now_ms: int
) -> dict[TopicPartition, int]:
    """Last commits of partitions that a member may have finished with before it left.

    A worker that drains ends its partitions one after the other, each with a commit, and leaves
    after the last. A member that polls commits all of them at once, and works until it leaves.
    """
    commits = {partition: _committed_ms(group, trace, partition) for partition in held}
    newest_ms = max(commits.values(), default=NO_TIME)
    since_ms = now_ms - DRAIN_MAX_MS
    return {p: at_ms for p, at_ms in commits.items() if since_ms <= at_ms < newest_ms}


def _gave_up_ms(
    group: ClassicGroup, trace: Trace, partition: TopicPartition, longest_ms: int, now_ms: int
) -> int:
    """Last commit of a partition that its owner gave up by itself, else when it was given it."""
    began_ms = _committed_ms(group, trace, partition)
    if began_ms == NO_TIME and trace.before is not None:
        began_ms = trace.before.state_changed_at_ms
    return now_ms if began_ms == NO_TIME else max(began_ms, now_ms - longest_ms)


def _said_ms(trace: Trace, ago_ms: int, now_ms: int) -> int:
    """Time at which a member says that it stopped, in its generation."""
    began_ms = trace.before.state_changed_at_ms if trace.before is not None else 0
    return min(max(now_ms - ago_ms, began_ms), now_ms)


def _committed_ms(group: ClassicGroup, trace: Trace, partition: TopicPartition) -> int:
    return committed_ms(group, trace.before, partition)


def _claimed(
    metadata: bytes, trace: Trace, read_owned: PartitionReader
) -> Container[TopicPartition] | None:
    """Partitions that a member holds as it joins; None: all of its own."""
    owned = read_owned(metadata)
    if owned is not None:
        return frozenset(owned)
    return None if _is_cooperative(trace) else frozenset()


def _is_cooperative(trace: Trace) -> bool:
    before = trace.before
    return before is not None and COOPERATIVE in (before.protocol_name or "")


def _end_of(event: MemberEvicted | MemberLeft, trace: Trace, now_ms: int) -> Span:
    """Span in which a member that is gone stopped to work."""
    if isinstance(event, MemberLeft):
        return now_ms, now_ms, StopKnownBy.LEFT
    cause, due_ms = event.cause, event.heartbeat_due_ms
    if cause is EvictionCause.SIZE_LIMIT:  # Its JoinGroup is refused: it learns of it at once.
        return now_ms, now_ms, StopKnownBy.REMOVED
    is_silent = due_ms + (due_ms - event.last_seen_ms) // LATENESS < now_ms
    is_unseen = event.last_seen_ms == NO_TIME  # Alive or not: nothing is known of it.
    if is_silent or is_unseen or cause is EvictionCause.SESSION_EXPIRED:
        return _end_of_silent(event, now_ms)
    notified_ms = trace.reported_at_ms.get(event.member_id, now_ms)
    earliest_ms = now_ms if notified_ms == NO_TIME else notified_ms
    return earliest_ms, max(due_ms, now_ms), StopKnownBy.REMOVED


def _end_of_silent(sign: MemberEvicted | MemberLeft | StaticMemberReplaced, now_ms: int) -> Span:
    latest_ms = min(sign.heartbeat_due_ms, now_ms)
    if sign.last_seen_ms == NO_TIME:
        return NO_TIME, latest_ms, StopKnownBy.NOT_SEEN
    is_measured = sign.heartbeat_interval_ms > 0
    known_by = StopKnownBy.LAST_SEEN if is_measured else StopKnownBy.INTERVAL_UNKNOWN
    return sign.last_seen_ms, latest_ms, known_by
