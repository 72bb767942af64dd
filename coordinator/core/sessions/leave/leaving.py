"""Members that leave: now, when all is handed over, or to be back soon."""

from __future__ import annotations

from dataclasses import replace

from coordinator.core.config import GroupConfig
from coordinator.core.context import ShardContext
from coordinator.core.errors import ErrorCode
from coordinator.core.ids import NO_TIME
from coordinator.core.numbers import Numbers
from coordinator.core.outcome import DeferKeeping, DeferLeave, Outcome
from coordinator.core.session_values.commands import LeaveOverdue
from coordinator.core.session_values.records import EndCause
from coordinator.core.session_values.requests import (
    GoAway,
    GoAwayReason,
    LeaveKind,
    SessionLeave,
    StreamRefused,
)
from coordinator.core.session_values.written import SessionWritten
from coordinator.core.sessions import flaps
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases
from coordinator.core.sessions.leave import ends
from coordinator.core.sessions.member import SessionMember
from coordinator.core.sessions.plan import windows
from coordinator.core.written import Unawaited

LEFT = GoAway(GoAwayReason.LEFT)
DRAINED = GoAway(GoAwayReason.DRAINED)
EVICTED = StreamRefused(ErrorCode.UNKNOWN_MEMBER_ID, "an operator has evicted the member")


def take_in(
    group: SessionGroup,
    member: SessionMember,
    leave: SessionLeave,
    now_ms: int,
    numbers: Numbers,
    out: Outcome,
    config: GroupConfig,
) -> None:
    """A member leaves."""
    if leave.kind is LeaveKind.DRAIN:
        _drain(group, member, leave.within_ms, now_ms, numbers, out, config)
        return
    flaps.note(group.flaps, member, now_ms, out)
    keep_ms, cause = 0, EndCause.LEFT
    if leave.kind is LeaveKind.RETURN and member.record.name:
        keep_ms = max(1, min(leave.within_ms, group.policy.max_return_ms))
        cause = EndCause.RETURNING
    ends.end(group, member, cause, now_ms, numbers, out, LEFT, keep_ms=keep_ms)


def _drain(
    group: SessionGroup,
    member: SessionMember,
    within_ms: int,
    now_ms: int,
    numbers: Numbers,
    out: Outcome,
    config: GroupConfig,
) -> None:
    """It hands everything over. A second word may shorten the time, and never extends it."""
    deadline_ms = now_ms + max(0, within_ms)
    if member.leaves_at_ms != NO_TIME and member.leaves_at_ms <= deadline_ms:
        return
    member.leaves_at_ms = deadline_ms
    out.defer(DeferLeave(group.group_id, member.member_id, deadline_ms))
    phases.leaves_by(group, member, now_ms, out)
    phases.reconsider(group, member.member_id, now_ms, numbers, out)
    _announce(group, member, now_ms, out)
    windows.call_urgently(group, now_ms, out, config)


def _announce(group: SessionGroup, member: SessionMember, now_ms: int, out: Outcome) -> None:
    """Have it on record, so that a new owner gives it nothing either, and forces the rest."""
    leave_ms = max(0, member.leaves_at_ms - now_ms)
    member.decided = replace(member.decided, leaves=True, leave_ms=leave_ms)
    settled = SessionWritten(group.group_id, leaver=member.member_id)
    out.persist((member.decided,), Unawaited(group.group_id), settled=settled)


def restore(group: SessionGroup, member: SessionMember, now_ms: int, out: Outcome) -> None:
    """A new owner runs the time of a Leave(DRAIN) once more in full, as it does with phases."""
    if member.record.leave_ms is not None and not member.record.evicted:
        member.leaves_at_ms = now_ms + member.record.leave_ms
        out.defer(DeferLeave(group.group_id, member.member_id, member.leaves_at_ms))
        phases.leaves_by(group, member, now_ms, out)


def announce_again(group: SessionGroup, member: SessionMember, now_ms: int, out: Outcome) -> None:
    """The log has refused the record of a Leave(DRAIN): write it again."""
    if member.leaves_at_ms != NO_TIME and not member.decided.leaves and not member.is_ended:
        _announce(group, member, now_ms, out)


def has_drained(group: SessionGroup, member: SessionMember) -> bool:
    """True if a member that leaves has nothing any more."""
    is_leaver = member.record.leaves and not member.is_ended
    return is_leaver and not group.count_held_by(member.member_id)


def finish(
    group: SessionGroup, member: SessionMember, now_ms: int, numbers: Numbers, out: Outcome
) -> None:
    """End the session of a member that has handed everything over, or lost it all by eviction."""
    if member.record.evicted:
        ends.end(group, member, EndCause.EVICTED, now_ms, numbers, out, EVICTED)
    else:
        ends.end(group, member, EndCause.DRAINED, now_ms, numbers, out, DRAINED)


def overdue(
    group: SessionGroup, command: LeaveOverdue, now_ms: int, out: Outcome, context: ShardContext
) -> None:
    """The deadline of Leave(DRAIN) has passed: force the rest, it may still be worked on."""
    member = group.members.get(command.member_id)
    if member is None or member.is_ended or member.leaves_at_ms > now_ms:
        return  # It was shortened, or is another one's.
    member.must_stop = True
    for place in list(group.places_of(member.member_id)):
        phases.reconcile(group, place, now_ms, context.numbers, out)


def keep(group: SessionGroup, name: str, now_ms: int, out: Outcome) -> None:
    """A name is kept from now on: arm its end."""
    until_ms = group.kept_until_ms[name] = now_ms + group.kept_names[name]
    out.defer(DeferKeeping(group.group_id, name, until_ms))
