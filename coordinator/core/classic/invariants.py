"""Invariants of a group, which hold between any two inputs."""

from __future__ import annotations

from collections import Counter

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.group import GroupState
from coordinator.core.values.errors import InvariantViolated


def check(group: ClassicGroup, previous_generation: int = 0) -> None:
    """Check all invariants of a group, linear in its members. Tests call it after every step.

    Args:
        previous_generation: the generation after the step before; the group was loaded
            before that, and one step completes at most one join phase of it.
    Raises:
        InvariantViolated: names the invariant that does not hold.
    """
    members = group.members
    joins = sum(member.parked_join is not None for member in members.values())
    _expect(group, group.parked_joins == joins, "1: the counter of parked joins is wrong")
    _expect(group, not (group.pending_member_ids.keys() & members.keys()), "2: a member is pending")
    _expect(group, group.awaited_syncs.keys() <= members.keys(), "2: a stranger is awaited in sync")
    _expect(group, (group.leader_id is None) == (not members), "3: members and leader disagree")
    _expect(
        group, group.leader_id is None or group.leader_id in members, "3: the leader is a stranger"
    )
    static = {m.instance_id: m.member_id for m in members.values() if m.instance_id is not None}
    _expect(group, group.static_members == static, "4: the table of instance ids is wrong")
    counts = Counter(name for m in members.values() for name in dict(m.protocols))
    _expect(group, group.protocol_counts == dict(counts), "5: a protocol's counter is wrong")
    if group.state is GroupState.EMPTY:
        _expect(group, not members, "6: Empty with members")
    if group.state in (GroupState.STABLE, GroupState.AWAITING_SYNC):
        _expect(group, bool(members), "6: a generation without members")
        _expect(
            group,
            group.protocol_name in group.common_protocols(),
            "6: not every member supports the selected protocol",
        )
    _expect(
        group,
        not group.replacements or group.state is GroupState.STABLE,
        "a restarted static member waits for the log in a group that is not Stable",
    )
    _expect(group, group.generation >= previous_generation, "7: the generation fell")
    if group.state is GroupState.STABLE:
        durable = group.committed.members if group.committed is not None else ()
        _expect(
            group,
            {(s.member_id, s.instance_id, s.assignment) for s in durable}
            == {(m.member_id, m.instance_id, m.assignment) for m in members.values()},
            "8: members of a Stable group have what no record says",
        )
    for call_id, (parked_in, member) in group.parked_calls.items():
        if parked_in is group:
            _expect(
                group,
                members.get(member.member_id) is member
                and call_id in (member.parked_join, member.parked_sync),
                "a parked call belongs to nobody",
            )


def _expect(group: ClassicGroup, holds: bool, message: str) -> None:
    if not holds:
        raise InvariantViolated(f"group {group.group_id!r} in {group.state.value}: {message}")
