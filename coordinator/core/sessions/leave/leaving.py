"""Leave: at once, after a drain, or with a reservation for the next process."""

from __future__ import annotations

from dataclasses import replace

from coordinator.core.sessions import restart_backoff
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases
from coordinator.core.sessions.leave import ends
from coordinator.core.sessions.member import SessionMember
from coordinator.core.sessions.plan import scheduler
from coordinator.core.step import Step
from coordinator.core.values.commands import LeaveOverdue, NoFollowUp, ReviewPartitions
from coordinator.core.values.effects import DeferLeave, DeferReservation
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import NO_TIME
from coordinator.core.values.records import EndCause
from coordinator.core.values.session_messages import (
    GoAway,
    GoAwayReason,
    LeaveKind,
    SessionLeave,
    StreamRefused,
)

LEFT = GoAway(GoAwayReason.LEFT)
DRAINED = GoAway(GoAwayReason.DRAINED)
EVICTED = StreamRefused(ErrorCode.UNKNOWN_MEMBER_ID, "an operator has evicted the member")


def take_in(group: SessionGroup, member: SessionMember, leave: SessionLeave, step: Step) -> None:
    if leave.kind is LeaveKind.DRAIN:
        _drain(group, member, leave.within_ms, step)
        return
    restart_backoff.note(group.restart_backoffs, member, step)
    keep_ms, cause = 0, EndCause.LEFT
    if leave.kind is LeaveKind.RETURN and member.record.name:
        keep_ms = max(1, min(leave.within_ms, group.policy.max_return_ms))
        cause = EndCause.RETURNING
    ends.end(group, member, cause, step, LEFT, keep_ms=keep_ms)


def _drain(group: SessionGroup, member: SessionMember, within_ms: int, step: Step) -> None:
    """Start draining a member. A second Leave may shorten the deadline, and never extends it."""
    deadline_ms = step.now_ms + max(0, within_ms)
    if member.leaves_at_ms != NO_TIME and member.leaves_at_ms <= deadline_ms:
        return
    member.leaves_at_ms = deadline_ms
    step.out.defer(DeferLeave(group.group_id, member.member_id, deadline_ms))
    phases.leaves_by(group, member, step)
    phases.reconsider(group, member.member_id, step)
    _announce(group, member, step)
    scheduler.request_plan_now(group, step)


def _announce(group: SessionGroup, member: SessionMember, step: Step) -> None:
    """Make a drain durable, so that a new owner of the shard continues it."""
    leave_ms = max(0, member.leaves_at_ms - step.now_ms)
    member.decided = replace(member.decided, leaves=True, leave_ms=leave_ms)
    announced = ReviewPartitions(group.group_id, leaver=member.member_id)
    step.out.persist((member.decided,), NoFollowUp(group.group_id), follow_up=announced)


def restore(group: SessionGroup, member: SessionMember, step: Step) -> None:
    """Restart the time of a Leave(DRAIN) in full under a new owner of the shard."""
    if member.record.leave_ms is not None and not member.record.evicted:
        member.leaves_at_ms = step.now_ms + member.record.leave_ms
        step.out.defer(DeferLeave(group.group_id, member.member_id, member.leaves_at_ms))
        phases.leaves_by(group, member, step)


def announce_again(group: SessionGroup, member: SessionMember, step: Step) -> None:
    """The log has refused the record of a Leave(DRAIN): write it again."""
    if member.leaves_at_ms != NO_TIME and not member.decided.leaves and not member.is_ended:
        _announce(group, member, step)


def has_drained(group: SessionGroup, member: SessionMember) -> bool:
    """True if a leaving member holds nothing any more."""
    is_leaver = member.record.leaves and not member.is_ended
    return is_leaver and not group.count_held_by(member.member_id)


def finish(group: SessionGroup, member: SessionMember, step: Step) -> None:
    """End the session of a leaving member that holds nothing any more."""
    if member.record.evicted:
        ends.end(group, member, EndCause.EVICTED, step, EVICTED)
    else:
        ends.end(group, member, EndCause.DRAINED, step, DRAINED)


def overdue(group: SessionGroup, command: LeaveOverdue, step: Step) -> None:
    """The deadline of Leave(DRAIN) has passed: force the remaining hand-offs."""
    member = group.members.get(command.member_id)
    if member is None or member.is_ended or member.leaves_at_ms > step.now_ms:
        return  # It was shortened, or is another one's.
    member.must_stop = True
    for partition in list(group.partitions_of(member.member_id)):
        phases.reconcile(group, partition, step)


def keep(group: SessionGroup, name: str, step: Step) -> None:
    """Arm the end of a reservation."""
    until_ms = group.reserved_until_ms[name] = step.now_ms + group.reserved_names[name]
    step.out.defer(DeferReservation(group.group_id, name, until_ms))
