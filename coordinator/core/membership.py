"""Small steps that several rules share: answer a member's calls, keep it alive, remove it."""

from __future__ import annotations

from coordinator.core.errors import ErrorCode, advice
from coordinator.core.events import (
    EvictionCause,
    MemberEvicted,
    MemberJoined,
    StaticMemberReplaced,
)
from coordinator.core.group import Group, Member, Replacement
from coordinator.core.outcome import DeferHeartbeat, MemberKey, Outcome
from coordinator.core.replies import JoinReply, SyncReply


def reset_session(group: Group, member: Member, now_ms: int, out: Outcome) -> None:
    """Count now as a sign of life: the deadline is one session timeout away."""
    member.last_heard_ms = now_ms
    deadline_ms = now_ms + member.session_timeout_ms
    out.defer(DeferHeartbeat(group.group_id, member.member_id, deadline_ms))


def fail_join(
    group: Group, member: Member, error: ErrorCode, out: Outcome, *, member_id: str
) -> None:
    """Answer the member's parked JoinGroup, if there is one, with an error."""
    call_id = group.unpark_join(member)
    if call_id is not None:
        out.reply(call_id, JoinReply(error, advice(error), member_id=member_id))


def fail_sync(group: Group, member: Member, error: ErrorCode, out: Outcome) -> None:
    """Answer the member's parked SyncGroup, if there is one, with an error."""
    call_id = group.unpark_sync(member)
    if call_id is not None:
        out.reply(call_id, SyncReply(error, advice(error)))


def take_over(group: Group, replacement: Replacement, now_ms: int, out: Outcome) -> Member:
    """Let a restarted process be the static member: the one before is fenced from here on."""
    command = replacement.command
    assert command.instance_id is not None
    old_id = group.static_members[command.instance_id]
    member = group.rename_static_member(command.instance_id, replacement.member_id)
    group.set_protocols(member, command.protocols)
    member.session_timeout_ms = command.session_timeout_ms
    member.rebalance_timeout_ms = command.rebalance_timeout_ms
    member.client_id = command.client_id
    # A process that restarts at once does so again: only its parked call keeps it alive.
    member.is_new = False
    group.move_to_host(member, command.client_host)
    out.check(MemberKey(group.group_id, old_id))
    reset_session(group, member, now_ms, out)
    out.note(
        StaticMemberReplaced(group.group_id, command.instance_id, old_id, replacement.member_id)
    )
    out.note(
        MemberJoined(
            group.group_id, member.member_id, command.client_id, command.client_host, False
        )
    )
    return member


def take_over_early(group: Group, now_ms: int, out: Outcome) -> None:
    """The group leaves Stable, and who waits for the log takes part in the join phase instead.

    A replacement that nobody waits for is left to the log: its old id stays.
    """
    replacements, group.replacements = group.replacements, ()
    for replacement in replacements:
        member = member_replaced(group, replacement)
        if member is not None and member.parked_join == replacement.command.call_id:
            take_over(group, replacement, now_ms, out)


def member_replaced(group: Group, replacement: Replacement) -> Member | None:
    """The static member whose place a restarted process wants; None if it is gone."""
    instance_id = replacement.command.instance_id
    assert instance_id is not None
    return group.members.get(group.static_members.get(instance_id, ""))


def remove(group: Group, member: Member, out: Outcome) -> None:
    """Take a member out: its parked calls get UNKNOWN_MEMBER_ID, its deadline goes."""
    fail_join(group, member, ErrorCode.UNKNOWN_MEMBER_ID, out, member_id="")
    fail_sync(group, member, ErrorCode.UNKNOWN_MEMBER_ID, out)
    group.remove_member(member.member_id)
    out.check(MemberKey(group.group_id, member.member_id))


def evict(group: Group, member: Member, cause: EvictionCause, out: Outcome) -> None:
    """Remove a member that did not ask for it, and say why."""
    remove(group, member, out)
    out.note(
        MemberEvicted(group.group_id, member.member_id, member.client_id, member.client_host, cause)
    )
