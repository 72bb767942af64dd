"""Selection of a group's protocol, that is of its partition assignor.

Source: Kafka `ClassicGroup.selectProtocol`, `supportsProtocols`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.group import GroupState
from coordinator.core.values.errors import ErrorCode, InvariantViolated, Refused


def check_acceptable(group: ClassicGroup, protocol_type: str, names: Iterable[str]) -> None:
    """Refuse a member that shares no protocol with the group.

    Raises:
        Refused: INCONSISTENT_GROUP_PROTOCOL.
    """
    offered = set(names)
    if not protocol_type or not offered:
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "name a protocol type and at least one protocol"
        )
    if group.state is GroupState.EMPTY:
        return
    # A join phase that lost all its members has no type and no list to agree with.
    if not group.members:
        return
    if protocol_type != group.protocol_type:
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the group's protocol type is {group.protocol_type!r}, not {protocol_type!r}",
        )
    common = group.common_protocols()
    if not offered & common:
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"offer one of the protocols that all members list: {sorted(common)}",
        )


def select(group: ClassicGroup) -> str:
    """Return the protocol with most votes; members vote for their first that all members list.

    Ties are decided by the order of the leader's list.

    Raises:
        InvariantViolated: there are no members, or nothing is common to them.
    """
    common = group.common_protocols()
    if not group.members or not common:
        raise InvariantViolated(f"group {group.group_id!r} has no protocol to select")
    votes: Counter[str] = Counter()
    for member in group.members.values():
        for name, _ in member.protocols:
            if name in common:
                votes[name] += 1
                break
    assert group.leader_id is not None
    preference = [name for name, _ in group.members[group.leader_id].protocols if name in common]
    most = max(votes.values())
    return next(name for name in preference if votes[name] == most)
