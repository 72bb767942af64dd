"""Steps shared by several rules: identify a member, refuse parked calls, extend its session."""

from __future__ import annotations

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.member import ClassicMember
from coordinator.core.group import GroupState
from coordinator.core.step import Step
from coordinator.core.values.effects import DeferHeartbeat, MemberKey
from coordinator.core.values.errors import ErrorCode, MustWait, Refused, advice
from coordinator.core.values.events import (
    EvictionCause,
    MemberEvicted,
    MemberJoined,
    MemberSeenAgain,
)
from coordinator.core.values.ids import NO_TIME
from coordinator.core.values.rebalance_journal import StoppedPartition
from coordinator.core.values.replies import JoinReply, SyncReply


def identify(group: ClassicGroup, member_id: str, instance_id: str | None) -> ClassicMember:
    """Return the member that sends a request.

    Without an instance id a static member is identified by its member id alone.

    Raises:
        Refused: UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID for a process whose instance id
            another process has taken.
    Source: KIP-345; Kafka `ClassicGroup.validateMember`.
    """
    if instance_id is not None:
        owner = group.static_members.get(instance_id)
        if owner is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        if owner != member_id:
            raise Refused(ErrorCode.FENCED_INSTANCE_ID)
    member = group.members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def check_not_replaced(group: ClassicGroup, member: ClassicMember) -> None:
    """Wait if a restarted process is taking the member's place.

    Raises:
        MustWait: the result of that write decides whether the caller is fenced.
    """
    for replacement in group.replacements:
        if replacement.deadline_ms is not None:
            if replacement.command.instance_id == member.instance_id:
                raise MustWait(replacement.deadline_ms)


def check_generation(group: ClassicGroup, generation: int) -> None:
    """Refuse a generation that is not the current one.

    Raises:
        Refused: ILLEGAL_GENERATION.
    """
    if generation != group.generation:
        raise Refused(
            ErrorCode.ILLEGAL_GENERATION,
            f"the group is in generation {group.generation}, not {generation}; join again",
        )


def note_seen(group: ClassicGroup, member: ClassicMember, step: Step, *, beats: bool) -> None:
    """Emit the event of a heartbeat or commit after an outage, or one that is late."""
    is_first = member.last_seen_ms == NO_TIME
    is_second_beat = beats and member.last_beat_ms != NO_TIME
    if member.unseen_signs and (is_first or is_second_beat):
        member.unseen_signs -= 1
        step.out.note(MemberSeenAgain(group.group_id, member.member_id))
    elif group.state is GroupState.STABLE and member.is_back_late(step.now_ms):
        step.out.note(MemberSeenAgain(group.group_id, member.member_id, *member.last_sign()))


def reset_session(group: ClassicGroup, member: ClassicMember, step: Step) -> None:
    """Extend the session of a member that was seen to one session timeout from now."""
    member.last_call_ms = step.now_ms
    _defer_session(group, member, step)


def excuse(group: ClassicGroup, member: ClassicMember, step: Step) -> None:
    """Extend the session of a member that was not seen to one session timeout from now."""
    member.excused_ms = step.now_ms
    _defer_session(group, member, step)


def _defer_session(group: ClassicGroup, member: ClassicMember, step: Step) -> None:
    deadline_ms = step.now_ms + member.session_timeout_ms
    step.out.defer(DeferHeartbeat(group.group_id, member.member_id, deadline_ms))


def fail_join(
    group: ClassicGroup, member: ClassicMember, error: ErrorCode, step: Step, *, member_id: str
) -> None:
    """Answer the member's parked JoinGroup, if there is one, with an error."""
    call_id = group.unpark_join(member)
    if call_id is not None:
        step.out.reply(call_id, JoinReply(error, advice(error), member_id=member_id))


def fail_sync(group: ClassicGroup, member: ClassicMember, error: ErrorCode, step: Step) -> None:
    """Answer the member's parked SyncGroup, if there is one, with an error."""
    call_id = group.unpark_sync(member)
    if call_id is not None:
        step.out.reply(call_id, SyncReply(error, advice(error)))


def note_joined(
    group: ClassicGroup,
    member: ClassicMember,
    step: Step,
    stopped: tuple[StoppedPartition, ...] = (),
) -> None:
    """Emit the event that a member has joined or re-joined. `stopped`: by its JoinGroup."""
    step.out.note(
        MemberJoined(
            group.group_id,
            member.member_id,
            member.client_id,
            member.client_host,
            member.is_new,
            member.client_software,
            stopped,
        )
    )


def give_up(group: ClassicGroup, error: ErrorCode, step: Step) -> None:
    """Answer every parked call of an unloaded group with `error`."""
    for member in group.members.values():
        fail_join(group, member, error, step, member_id=member.member_id)
        fail_sync(group, member, error, step)
    group.state = GroupState.DEAD


def remove(group: ClassicGroup, member: ClassicMember, step: Step) -> None:
    """Remove a member and its deadline; its parked calls get UNKNOWN_MEMBER_ID."""
    fail_join(group, member, ErrorCode.UNKNOWN_MEMBER_ID, step, member_id="")
    fail_sync(group, member, ErrorCode.UNKNOWN_MEMBER_ID, step)
    group.remove_member(member.member_id)
    step.out.check(MemberKey(group.group_id, member.member_id))


def evict(group: ClassicGroup, member: ClassicMember, cause: EvictionCause, step: Step) -> None:
    """Remove a member that did not leave by itself, and emit the cause."""
    remove(group, member, step)
    step.out.note(
        MemberEvicted(
            group.group_id,
            member.member_id,
            member.client_id,
            member.client_host,
            member.client_software,
            *member.last_sign(),
            cause,
            member.instance_id or "",
        )
    )
