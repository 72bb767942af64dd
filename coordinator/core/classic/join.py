"""JoinGroup: new members get a member id, members re-join, and both wait for the phase to end.

A new dynamic member makes two calls (KIP-394): the first returns a member id and changes nothing
else; the second, with that id, adds the member. So a client that gives up in between leaves no
member behind, only a pending id that expires. A static member needs one call.

Source: KIP-134, KIP-345, KIP-389, KIP-394; Kafka `GroupCoordinator.doJoinGroup`,
`doUnknownJoinGroup`.
"""

from __future__ import annotations

from coordinator.core.classic import protocols, rebalance, static_members
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.member import ClassicMember
from coordinator.core.classic.membership import (
    check_not_replaced,
    evict,
    fail_join,
    identify,
    note_joined,
)
from coordinator.core.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from coordinator.core.group import GroupState
from coordinator.core.step import Step
from coordinator.core.values.commands import AnswerJoin
from coordinator.core.values.effects import DeferHeartbeat, JoinKey, MemberKey
from coordinator.core.values.errors import ErrorCode, Refused, advice
from coordinator.core.values.events import EvictionCause, JoinRefused, RebalanceCause
from coordinator.core.values.replies import JoinReply
from coordinator.core.values.requests import JoinGroup


def join_group(group: ClassicGroup, command: JoinGroup, step: Step) -> None:
    """Answer or park a JoinGroup; the journal keeps refused ones.

    Raises:
        Refused: before anything changed.
        MustWait: a restarted process may have taken the caller's place.
    """
    if not admits(group, command, step.config):
        _refuse_seat(group, command, step)
        return
    try:
        group.check_alive()
        protocols.check_acceptable(group, command.protocol_type, (n for n, _ in command.protocols))
        if command.member_id:
            _join_known(group, command, step)
        else:
            _join_unknown(group, command, step)
    except Refused as refused:
        _note_refused(command, refused.error, step)
        raise


def check_first(_: None, command: JoinGroup, _step: Step) -> None:
    """Refuse a JoinGroup with a member id to a group that does not exist.

    Raises:
        Refused: UNKNOWN_MEMBER_ID.
    """
    if command.member_id:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)


def admits(group: ClassicGroup, command: JoinGroup, config: GroupConfig) -> bool:
    """True if `group_max_size` admits this joiner.

    In a join phase members are admitted in the order in which they join, so that a lowered limit
    takes effect. A restarted static member counts as the member it replaces.

    Source: KIP-389; Kafka `GroupCoordinator.acceptJoiningMember`.
    """
    member_id = command.member_id
    if not member_id and command.instance_id is not None:
        member_id = group.static_members.get(command.instance_id, "")
    member = group.members.get(member_id)
    match group.state:
        case GroupState.EMPTY | GroupState.DEAD:
            return True
        case GroupState.PREPARING_REBALANCE:
            if member is not None and member.parked_join is not None:
                return True
            return group.parked_joins < config.group_max_size
        case GroupState.AWAITING_SYNC | GroupState.STABLE:
            return member is not None or len(group.members) < config.group_max_size
        case GroupState.ASSIGNING | GroupState.RECONCILING:
            raise AssertionError("a classic group is in no state of sessions")


def answer_join(_: None, command: AnswerJoin, step: Step) -> None:
    """Answer a JoinGroup whose generation floor is durable, or refused."""
    reply = command.reply
    if command.error is not ErrorCode.NONE:
        reply = JoinReply(command.error, advice(command.error), member_id=reply.member_id)
    step.out.reply(command.call_id, reply)


# --- Without a member id ----------------------------------------------------------------------


def _join_unknown(group: ClassicGroup, command: JoinGroup, step: Step) -> None:
    if command.instance_id is not None:
        member_id = step.ids.new_member_id(command.instance_id)
        if command.instance_id in group.static_members:
            static_members.replace(group, command, member_id, step)
        else:
            _add_member(group, command, member_id, step)
    elif command.require_known_member_id:
        _hand_out_id(group, command, step.ids.new_member_id(command.client_id), step)
    else:
        member_id = step.ids.new_member_id(command.client_id)
        _add_member(group, command, member_id, step)


def _hand_out_id(group: ClassicGroup, command: JoinGroup, member_id: str, step: Step) -> None:
    """First call: return a pending member id, valid for one session timeout."""
    group.pending_member_ids[member_id] = None
    deadline_ms = step.now_ms + command.session_timeout_ms
    step.out.defer(DeferHeartbeat(group.group_id, member_id, deadline_ms))
    error = ErrorCode.MEMBER_ID_REQUIRED
    step.out.reply(command.call_id, JoinReply(error, advice(error), member_id=member_id))


def _add_member(group: ClassicGroup, command: JoinGroup, member_id: str, step: Step) -> None:
    member = ClassicMember.joining(command, member_id, step.now_ms)
    if group.initial_join and group.state is GroupState.PREPARING_REBALANCE:
        group.new_member_added = True
    if not group.members:
        group.protocol_type = command.protocol_type
    group.add_member(member)
    group.park_join(member, command.call_id)
    deadline_ms = step.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
    step.out.defer(DeferHeartbeat(group.group_id, member_id, deadline_ms))
    note_joined(group, member, step)
    rebalance.request(
        group, RebalanceCause.MEMBER_JOINED, step, member=member, reason=command.reason
    )


# --- With a member id -------------------------------------------------------------------------


def _join_known(group: ClassicGroup, command: JoinGroup, step: Step) -> None:
    if command.member_id in group.pending_member_ids:
        if command.instance_id is not None:
            raise Refused(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "this id was given to a dynamic member; join without group_instance_id",
            )
        _add_member(group, command, command.member_id, step)
        return
    member = identify(group, command.member_id, command.instance_id)
    check_not_replaced(group, member)
    changed = member.protocols != command.protocols
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            _rejoin(group, member, command, step)
            step.out.check(JoinKey(group.group_id))
        case GroupState.AWAITING_SYNC if not changed:
            rebalance.repeat_join_reply(group, member, command.call_id, step)
        case GroupState.STABLE if not changed and not _calls_for_rebalance(group, member):
            rebalance.repeat_join_reply(group, member, command.call_id, step)
        case GroupState.AWAITING_SYNC | GroupState.STABLE:
            cause = _why(group, member, changed=changed)
            _rejoin(group, member, command, step)
            rebalance.prepare(group, cause, step, member=member, reason=command.reason)
        case GroupState.EMPTY | GroupState.DEAD:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)


def _why(group: ClassicGroup, member: ClassicMember, *, changed: bool) -> RebalanceCause:
    if changed:
        return RebalanceCause.METADATA_CHANGED
    if member.member_id == group.leader_id:
        return RebalanceCause.LEADER_REJOINED
    return RebalanceCause.LOADED


def _calls_for_rebalance(group: ClassicGroup, member: ClassicMember) -> bool:
    """True if a re-join without changes starts a rebalance of a Stable group.

    A leader reports in this way that the topics have changed. In a group that was loaded and has
    not rebalanced since, a member that re-joins was in a rebalance that the fail-over interrupted.
    It may know that generation, and must not be answered with an older one.
    """
    return member.member_id == group.leader_id or group.generation < group.generation_floor


def _rejoin(group: ClassicGroup, member: ClassicMember, command: JoinGroup, step: Step) -> None:
    """Update the member by its request, and park the call in place of an older one."""
    fail_join(group, member, ErrorCode.REBALANCE_IN_PROGRESS, step, member_id=member.member_id)
    group.set_protocols(member, command.protocols)
    member.rebalance_timeout_ms = command.rebalance_timeout_ms
    member.session_timeout_ms = command.session_timeout_ms
    member.client_software = command.client_software
    group.park_join(member, command.call_id)
    note_joined(group, member, step, command.stopped)


def _refuse_seat(group: ClassicGroup, command: JoinGroup, step: Step) -> None:
    """Refuse a joiner beyond `group_max_size`; if it was a member, it is evicted."""
    member_id = command.member_id
    error = ErrorCode.GROUP_MAX_SIZE_REACHED
    step.out.reply(command.call_id, JoinReply(error, advice(error)))
    _note_refused(command, error, step)
    group.pending_member_ids.pop(member_id, None)
    member = group.members.get(member_id)
    if member is not None:
        evict(group, member, EvictionCause.SIZE_LIMIT, step)
    step.out.check(MemberKey(group.group_id, member_id))
    step.out.check(JoinKey(group.group_id))


def _note_refused(command: JoinGroup, error: ErrorCode, step: Step) -> None:
    names = tuple(name for name, _ in command.protocols)
    step.out.note(
        JoinRefused(command.group_id, command.client_id, command.client_host, error, names)
    )
