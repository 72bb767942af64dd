"""Ends of sessions: lease expired, member left, or evicted by an operator.

An end is decided once: from then on the member is gone, whether or not the record of it is durable.

Nobody is declared dead while the log is unavailable. It refuses the end of a lease at once then,
which is taken back and put off. A record that changes nothing asks the log whether it is back. When
it is, the leases end of those that were not seen meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coordinator.core.pauses import Pause
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases
from coordinator.core.sessions.leave import name_takeover
from coordinator.core.sessions.member import SessionMember
from coordinator.core.step import Step
from coordinator.core.values.commands import CloseSession, LeaseExpired, NoFollowUp, ResumeExpiry
from coordinator.core.values.effects import DeferLease, MemberKey
from coordinator.core.values.errors import SESSION_ENDED, ErrorCode
from coordinator.core.values.ids import NO_TIME
from coordinator.core.values.records import EndCause, PartitionsGranted, Record, SessionMemberEnded
from coordinator.core.values.session_messages import GoAway, StreamEnd, StreamRefused

PASSED_ON_MAX = 1_000
"""Records in one write, of partitions that go on when their holder ends. A write that a log finds
too large would never be written; those before the record of the end are valid without it."""

WITHOUT_CONSENT = (EndCause.LEASE_EXPIRED, EndCause.RESTORED)
"""Ends of members that may still be working. An evicted one has given everything up, or an operator
vouches that it has ended."""

GONE = StreamRefused(ErrorCode.UNKNOWN_MEMBER_ID, SESSION_ENDED)


def expire(group: SessionGroup, command: LeaseExpired, step: Step) -> None:
    """End a session whose lease expired; once put off if this node stood still around that time."""
    member = group.members.get(command.member_id)
    if member is None or member.is_ended:
        return
    end_ms = member.ends_at_ms
    if end_ms > step.now_ms:
        step.out.defer(DeferLease(group.group_id, member.member_id, end_ms))
        return
    quarter_ms, pauses = member.lease_ms // 4, step.context.pauses
    if not member.was_excused and _stood_still(pauses, end_ms, step.now_ms, quarter_ms):
        member.was_excused = True
        step.out.defer(DeferLease(group.group_id, member.member_id, step.now_ms + quarter_ms))
        return
    end(group, member, EndCause.LEASE_EXPIRED, step, GONE)


def _put_off(group: SessionGroup, member: SessionMember, step: Step) -> None:
    """Postpone the end of a lease until the log is available or the member is seen."""
    if not group.overdue:
        nothing = PartitionsGranted(group.group_id, ())
        answered = ResumeExpiry(group.group_id, asked_ms=step.now_ms)
        step.out.persist((nothing,), NoFollowUp(group.group_id), follow_up=answered)
    group.overdue.add(member.member_id)
    member.was_excused = True  # That its end comes late is not for a loop that stood still.


def resume_expiry(group: SessionGroup, done: ResumeExpiry, step: Step) -> None:
    """The log is available again: end the leases that have run out. Else ask it again.

    One that could not be reached was tried until the time-out of the write, and is asked again at
    once. One that refuses at once is asked later.
    """
    again_ms = done.asked_ms + phases.RETRY_MS
    overdue, group.overdue = group.overdue, set()
    for member_id in sorted(overdue):
        if done.error is ErrorCode.NONE:
            member = group.members[member_id]
            end(group, member, EndCause.LEASE_EXPIRED, step, GONE)
        else:
            step.out.defer(DeferLease(group.group_id, member_id, again_ms))


def is_taken_back(done: CloseSession) -> bool:
    """True if the log was unavailable for the end of a lease."""
    is_by_time = done.cause is EndCause.LEASE_EXPIRED
    return is_by_time and done.error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def take_back(group: SessionGroup, done: CloseSession, step: Step, *, has_stream: bool) -> None:
    """Undo the end of a lease that the unavailable log did not store: the member may return."""
    member = group.members[done.member_id]
    member.is_ended = False
    for partition in group.partitions_of(member.member_id):
        if group.partition_state(partition).release is None:
            group.state_to_change(partition).not_before_ms = NO_TIME
            group.drop_if_empty(partition)
            group.topics[partition[0]].idle_spans.pop(partition[1], None)
    if not has_stream:
        member.lose_stream(step.now_ms)
    queued = group.waiting.get(member.record.name)
    if queued is not None and queued.stream_id is None:
        del group.waiting[member.record.name]  # It was to be a member by the same write.
    _put_off(group, member, step)


def end(
    group: SessionGroup,
    member: SessionMember,
    cause: EndCause,
    step: Step,
    last: StreamEnd,
    *,
    keep_ms: int = 0,
) -> None:
    """Decide the end of a session; it takes effect when its record is durable.

    `last`: what its stream ends with, when the end is durable.
    """
    member.is_ended, member.goes_away = True, isinstance(last, GoAway)
    group.overdue.discard(member.member_id)
    step.out.check(MemberKey(group.group_id, member.member_id))
    ended = CloseSession(
        group.group_id, member.member_id, cause, (), member.stream_id, last, keep_ms=keep_ms
    )
    write_end(group, member, ended, step)


def write_end(group: SessionGroup, member: SessionMember, ended: CloseSession, step: Step) -> None:
    """Write the end of a session that is decided, for the first time or again.

    What it was handing over goes to the successors in the same write, and a process that waits for
    its name inherits the rest.
    """
    keep_ms, queued = ended.keep_ms, name_takeover.queued_and_alive(group, member, step.now_ms)
    partitions = list(group.partitions_of(member.member_id))
    is_by_time = ended.cause is EndCause.LEASE_EXPIRED
    delay_ms = group.policy.handover_delay_ms if ended.cause in WITHOUT_CONSENT else 0
    if ended.cause is EndCause.RESTORED:  # Its process may not hear of it, and act on.
        delay_ms += max(0, member.ends_at_ms - step.now_ms)
    delay_ms = max(delay_ms, group.grants_from_ms - step.now_ms)
    if delay_ms > 0:
        for partition in partitions:
            group.state_to_change(partition).not_before_ms = step.now_ms + delay_ms
    if queued is not None:
        keep_ms = max(0, delay_ms)  # Longer than that, it need not wait for its own.
        queued = None if delay_ms > 0 else queued
    is_inherited = queued is not None or keep_ms > 0
    passed_on = phases.end_of_holder(
        group,
        member,
        ended.cause,
        step.now_ms,
        step.numbers,
        is_inherited=is_inherited,
        is_delayed=delay_ms > 0,
    )
    for begin in range(0, len(passed_on), PASSED_ON_MAX):
        step.out.persist(
            passed_on[begin : begin + PASSED_ON_MAX],
            NoFollowUp(group.group_id),
            is_retried=not is_by_time,
        )
    records: list[Record] = []
    if queued is not None:
        records, others = name_takeover.records(group, member, queued, step.now_ms, step.numbers)
        partitions += [partition for partition in others if partition not in partitions]
    # It frees what the records before it have not passed on.
    records.append(
        SessionMemberEnded(group.group_id, member.member_id, ended.cause, step.now_ms, keep_ms)
    )
    group.note_write_pending(partitions)
    ended_now = replace(
        ended,
        partitions=tuple(partitions),
        reserved_name=member.record.name if keep_ms else "",
        keep_ms=keep_ms,
        queued_id="" if queued is None else queued.member_id,
    )
    step.out.persist(
        records, NoFollowUp(group.group_id), follow_up=ended_now, is_retried=not is_by_time
    )


def _stood_still(pauses: Sequence[Pause], end_ms: int, now_ms: int, longest_ms: int) -> bool:
    return now_ms - end_ms > longest_ms or any(
        pause.to_ms - pause.from_ms > longest_ms and pause.from_ms <= end_ms <= pause.to_ms
        for pause in pauses
    )
