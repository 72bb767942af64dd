"""Descriptions of one classic group: its members, its journal, its current phase.

Source: Kafka `GroupMetadataManager.describeGroups`.
"""

from __future__ import annotations

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.member import ClassicMember
from coordinator.core.group import GroupState
from coordinator.core.step import Step
from coordinator.core.values.ids import NO_TIME
from coordinator.core.values.replies import (
    AwaitedMember,
    DescribedMember,
    DescribeReply,
    PhaseReply,
)
from coordinator.core.values.requests import DescribeGroup, DescribePhase


def describe_group(group: ClassicGroup, command: DescribeGroup, step: Step) -> None:
    """Answer with the group and its members; metadata and assignments in Stable only."""
    stable = group.state is GroupState.STABLE
    members = tuple(
        DescribedMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata_for(group.protocol_name) if stable else b"",
            member.assignment if stable else b"",
            member.client_software,
        )
        for member in group.members.values()
    )
    step.out.reply(
        command.call_id,
        DescribeReply(
            group.group_id,
            state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_name=(group.protocol_name or "") if stable else "",
            members=members,
            generation=group.generation,
            leader=group.leader_id or "",
        ),
    )


def describe_phase(group: ClassicGroup, command: DescribePhase, step: Step) -> None:
    """Answer with the members that the current phase waits for; in a Stable group, with those whose
    heartbeat is late, until their sessions end."""
    awaited: list[AwaitedMember] = []
    if group.state is GroupState.PREPARING_REBALANCE:
        awaited = [_awaited(group, m) for m in group.members.values() if m.parked_join is None]
        awaited += [AwaitedMember(member_id) for member_id in group.pending_member_ids]
    elif group.state is GroupState.AWAITING_SYNC:
        awaited = [_awaited(group, m) for m in group.members.values() if m.parked_sync is None]
    is_waiting = group.is_rebalancing
    since_ms = group.state_changed_at_ms
    deadline_ms = since_ms + group.rebalance_timeout_ms if is_waiting else NO_TIME
    silent = [] if is_waiting else [m for m in group.members.values() if m.is_silent(step.now_ms)]
    if silent:
        awaited = [_awaited(group, member) for member in silent]
        since_ms = min(member.session_began_ms for member in silent)
        ends = (member.session_began_ms + member.session_timeout_ms for member in silent)
        deadline_ms = max(step.now_ms, *ends)
    reply = PhaseReply(
        state=group.state.value,
        since_ms=since_ms,
        deadline_ms=deadline_ms,
        is_initial_delay=group.initial_join,
        awaited=tuple(awaited),
    )
    step.out.reply(command.call_id, reply)


def _awaited(group: ClassicGroup, member: ClassicMember) -> AwaitedMember:
    is_unseen = member.last_seen_ms == NO_TIME
    return AwaitedMember(
        member.member_id,
        member.client_id,
        member.client_host,
        is_leader=member.member_id == group.leader_id,
        last_seen_ms=member.excused_ms if is_unseen else member.last_seen_ms,
        session_timeout_ms=member.session_timeout_ms,
    )
