"""Members that may have a partition, and its next successor when one falls out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from zlib import crc32

from coordinator.core.ids import NO_TIME, Place
from coordinator.core.sessions.group import SessionGroup


def may_have(group: SessionGroup, place: Place, member_id: str) -> bool:
    """True if a member may be, or stay, the successor of a partition."""
    member = group.members.get(member_id)
    if member is None or member.is_ended or member.record.leaves or member.leaves_at_ms >= 0:
        return False
    if group.back_offs.get((place, member.name), (NO_TIME, 0))[0] != NO_TIME:
        return False
    return place[1] < member.declares(place[0])


def may_get(group: SessionGroup, place: Place, member_id: str) -> bool:
    """True if a member may be given a partition now."""
    return may_have(group, place, member_id) and group.members[member_id].receives


def load_of(group: SessionGroup, member_id: str) -> int:
    """Partitions that count at a member: held without a successor, and on their way to it."""
    return held_by(group, member_id) + on_their_way(group)[member_id]


def held_by(group: SessionGroup, member_id: str) -> int:
    """Partitions that a member holds, in any phase."""
    return sum(map(len, group.held.get(member_id, {}).values()))


def on_their_way(group: SessionGroup) -> Counter[str]:
    """Partitions that each member is to get, less those that it is to hand over."""
    found: Counter[str] = Counter()
    for place, handoff in group.open_handoffs():
        if handoff.successor:
            found[handoff.successor] += 1
            found[group.holder(place)] -= 1
    return found


def choose(group: SessionGroup, place: Place, but: AbstractSet[str]) -> str:
    """The member with the lowest load by capacity that may get a partition; empty: nobody.

    Nobody gets one that was refused three times in a row, for a while.
    """
    if group.backed_off.get(place, (NO_TIME, 0))[0] != NO_TIME:
        return ""
    found = [
        member
        for member_id, member in group.members.items()
        if member_id not in but and may_get(group, place, member_id)
    ]
    moves = on_their_way(group) if found else Counter()
    room = [
        (load, member)
        for member in found
        for load in [held_by(group, member.member_id) + moves[member.member_id]]
        if member.record.max_partitions is None or load < member.record.max_partitions
    ]
    if not room:
        return ""

    def key(each: tuple[int, object]) -> tuple[float, int]:
        load, member = each
        assert hasattr(member, "name")
        tie = crc32(f"{place[0]}:{place[1]}:{member.name}".encode())
        return (2 * load + 1) / member.record.capacity, tie  # type: ignore[attr-defined]

    return min(room, key=key)[1].member_id
