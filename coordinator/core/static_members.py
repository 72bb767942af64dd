"""A static member whose process has restarted takes its place back.

It comes with its instance id and no member id, is always given a fresh member id, and
so fences the process it replaces. In a Stable group nobody else needs to notice: if
the group would still select the same protocol, the new id is written and answered
with the generation that is in force.

Source: KIP-345, KIP-814; Kafka `GroupCoordinator.updateStaticMemberAndRebalance`.
"""

from __future__ import annotations

from dataclasses import replace as with_changes

from coordinator.core import protocols, rebalance
from coordinator.core.commands import JoinGroup, StaticMemberWritten
from coordinator.core.errors import ErrorCode, InvariantViolated, advice
from coordinator.core.events import MemberJoined, RebalanceCause, StaticMemberReplaced
from coordinator.core.group import Group, GroupState
from coordinator.core.membership import fail_join, fail_sync, reset_session
from coordinator.core.outcome import JoinKey, MemberKey, Outcome
from coordinator.core.replies import JoinReply


def replace(group: Group, command: JoinGroup, member_id: str, now_ms: int, out: Outcome) -> None:
    """Let the joining process take over its instance id, under a fresh `member_id`."""
    assert command.instance_id is not None
    old_id = group.static_members[command.instance_id]
    member = group.members[old_id]
    fail_join(group, member, ErrorCode.FENCED_INSTANCE_ID, out, member_id=old_id)
    fail_sync(group, member, ErrorCode.FENCED_INSTANCE_ID, out)
    previous = (member.protocols, member.session_timeout_ms, member.rebalance_timeout_ms)
    group.rename_static_member(command.instance_id, member_id)
    group.set_protocols(member, command.protocols)
    member.session_timeout_ms = command.session_timeout_ms
    member.rebalance_timeout_ms = command.rebalance_timeout_ms
    member.client_id = command.client_id
    group.move_to_host(member, command.client_host)
    out.check(MemberKey(group.group_id, old_id))
    reset_session(group, member, now_ms, out)
    group.park_join(member, command.call_id)
    out.note(StaticMemberReplaced(group.group_id, command.instance_id, old_id, member_id))
    out.note(MemberJoined(group.group_id, member_id, command.client_id, command.client_host, False))
    match group.state:
        case GroupState.STABLE if protocols.select(group) == group.protocol_name:
            # Known to the log already, but for the id.
            record = group.metadata_record(now_ms)
            out.persist(
                [record],
                StaticMemberWritten(
                    record=record,
                    member_id=member_id,
                    previous_member_id=old_id,
                    previous_protocols=previous[0],
                    previous_session_timeout_ms=previous[1],
                    previous_rebalance_timeout_ms=previous[2],
                    supports_skip_assignment=command.supports_skip_assignment,
                ),
            )
        case GroupState.STABLE | GroupState.AWAITING_SYNC:
            # In a sync phase the old id may stand in the leader's assignment already.
            rebalance.prepare(
                group,
                RebalanceCause.STATIC_MEMBER_REPLACED,
                now_ms,
                out,
                member=member,
                reason=command.reason,
            )
        case GroupState.PREPARING_REBALANCE:
            out.check(JoinKey(group.group_id))
        case GroupState.EMPTY | GroupState.DEAD:
            raise InvariantViolated(f"group {group.group_id!r} has members but no generation")


def replacement_written(
    group: Group, command: StaticMemberWritten, now_ms: int, out: Outcome
) -> None:
    """The new id is durable: answer; or it is not: give the old one its place back.

    If the group left Stable meanwhile, the parked join takes part in what goes on.
    """
    member = group.members.get(command.member_id)
    if (
        member is None
        or group.state is not GroupState.STABLE
        or group.generation != command.record.generation
    ):
        return
    call_id = group.unpark_join(member)
    if command.error is not ErrorCode.NONE:
        assert member.instance_id is not None
        group.rename_static_member(member.instance_id, command.previous_member_id)
        group.set_protocols(member, command.previous_protocols)
        member.session_timeout_ms = command.previous_session_timeout_ms
        member.rebalance_timeout_ms = command.previous_rebalance_timeout_ms
        out.check(MemberKey(group.group_id, command.member_id))
        reset_session(group, member, now_ms, out)
        if call_id is not None:
            failed = JoinReply(command.error, advice(command.error), generation=group.generation)
            out.reply(call_id, failed)
        return
    reset_session(group, member, now_ms, out)
    if call_id is None:
        return  # Its client has gone away meanwhile.
    reply = rebalance.join_reply(group, member)
    is_leader = member.member_id == group.leader_id
    if command.supports_skip_assignment:
        reply = with_changes(reply, skip_assignment=is_leader)
    elif is_leader:
        # An old client that reads its own id here would compute an assignment for nobody.
        reply = with_changes(reply, leader=command.previous_member_id, members=())
    out.reply(call_id, reply)
