"""Protocols of a group's members: the one that is selected, and the topics that they read.

Source: Kafka `ClassicGroup.selectProtocol`, `supportsProtocols`, `computeSubscribedTopics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.group import CONSUMER_PROTOCOL_TYPE, GroupState
from coordinator.core.payloads import TopicReader
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


READ_MAX = 50_000
"""Topics parsed at the start of a generation, summed over different subscriptions, which takes
50 ms. For groups with more they are unknown."""


def subscribed_topics(group: ClassicGroup, read_topics: TopicReader) -> frozenset[str] | None:
    """Return the topics that any member reads; None if they are unknown.

    Source: Kafka `ClassicGroup.computeSubscribedTopics`.
    """
    if not group.members:
        return frozenset()
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or group.protocol_name is None:
        return None
    name = group.protocol_name
    topics: frozenset[str] = frozenset()
    read = 0
    # Most members send equal metadata: each is parsed once.
    for metadata in {member.metadata_for(name) for member in group.members.values()}:
        more = read_topics(metadata)
        if more is None:
            return None
        read += len(more)
        if read > READ_MAX:
            return None
        # Groups with one set of topics share the parser's copy of it.
        topics = more if not topics else topics if more <= topics else topics | more
    return topics
