"""First half of a plan: what has to go, what has no holder, and what the rules alone decide.

A partition that its holder may not keep has to go; all others stay. Pinned ones are settled here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from zlib import crc32

from coordinator.core.session_values.plans import (
    FREE,
    KEPT,
    NOBODY,
    Move,
    MoveReason,
    Partition,
    PlanInput,
    PlanTopic,
    Unplaced,
)


def tie(state: PlanInput, topic: int, partition: int, member: int) -> int:
    """Order among members that are equal otherwise."""
    key = f"{state.topics[topic].name}:{partition}:{state.members[member].name}"
    return crc32(key.encode())


@dataclass(slots=True)
class Work:
    """A plan in the making, after the hard rules.

    loads: partitions that count at each member and stay there unless balance moves them.
    bound: of these, those that balance must not move.
    orphans: partitions without a holder that look for one, by topic, ascending.
    forced: held partitions that have to go, with their reasons; they look for a member as well.
    settled: moves and grants that the rules alone decide.
    """

    state: PlanInput
    loads: list[int]
    bound: list[int]
    orphans: dict[int, list[int]]
    forced: dict[Partition, tuple[int, MoveReason]]
    settled: list[tuple[Partition, int]]
    moves: list[Move]
    unplaced: dict[Partition, Unplaced]

    def receivers(self) -> list[int]:
        """Members that may be given partitions."""
        return [
            number
            for number, member in enumerate(self.state.members)
            if member.receives and not member.leaves and member.capacity > 0
        ]

    def is_even(self) -> bool:
        """True if all that receive may have the same partitions."""
        if self.state.barred:
            return False
        members, topics = self.state.members, self.state.topics
        receivers = self.receivers()
        if not receivers:
            return True
        needed = tuple(topic.count for topic in topics)
        kinds = {members[number].declares for number in receivers}
        return len(kinds) == 1 and needed == next(iter(kinds))


def after_hard_rules(state: PlanInput) -> Work:
    members, topics = state.members, state.topics
    loads = [0] * len(members)
    for topic in topics:
        for member, count in Counter(topic.at).items():
            if member >= 0:
                loads[member] += count
    work = Work(state, loads, [0] * len(members), {}, {}, [], [], {})
    for number, topic in enumerate(topics):
        _rules_of_topic(work, number, topic)
    for number, partition, barred in state.barred:
        if _holder(state, number, partition) == barred and partition < topics[number].count:
            _force(work, (number, partition), barred, MoveReason.NOT_ALLOWED)
    for (number, partition), pinned_to in state.pins.items():
        _pin(work, number, partition, pinned_to)
    return work


def _rules_of_topic(work: Work, number: int, topic: PlanTopic) -> None:
    members = work.state.members
    at = topic.at
    if FREE in at:
        work.orphans[number] = [p for p, m in enumerate(at[: topic.count]) if m == FREE]
    for partition in range(topic.count, len(at)):
        if at[partition] >= 0:
            work.loads[at[partition]] -= 1
        if at[partition] >= 0 and partition not in topic.moving:
            move = Move(number, partition, at[partition], NOBODY, MoveReason.NO_LONGER_DECLARED)
            work.moves.append(move)
    for partition in topic.moving:
        if partition < topic.count and at[partition] >= 0:
            work.bound[at[partition]] += 1
    strict = {
        m: member
        for m, member in enumerate(members)
        if member.leaves or member.declares[number] < topic.count
    }
    if not strict:
        return
    for partition, holder in enumerate(at[: topic.count]):
        member = strict.get(holder)
        if member is None:
            continue
        if member.leaves:
            _force(work, (number, partition), holder, MoveReason.HOLDER_LEAVES)
        elif partition >= member.declares[number]:
            _force(work, (number, partition), holder, MoveReason.NO_LONGER_DECLARED)


def _holder(state: PlanInput, number: int, partition: int) -> int:
    at = state.topics[number].at
    return at[partition] if partition < len(at) else FREE


def _force(work: Work, partition: Partition, holder: int, reason: MoveReason) -> None:
    if partition in work.forced:
        return
    work.forced[partition] = holder, reason
    work.loads[holder] -= 1
    if partition[1] in work.state.topics[partition[0]].moving:
        work.bound[holder] -= 1


def _pin(work: Work, number: int, partition: int, member: int | None) -> None:
    """A pinned partition is settled: it goes to its member, or waits for it where it is."""
    state = work.state
    if partition >= state.topics[number].count:
        return
    place = number, partition
    holder = _holder(state, number, partition)
    if holder == KEPT:
        return  # For the name of a member that has announced to return.
    wanted = None if member is None else state.members[member]
    can_go = (
        member is not None
        and wanted is not None
        and wanted.receives
        and not wanted.leaves
        and partition < wanted.declares[number]
        and (number, partition, member) not in state.barred
        and (wanted.max_partitions is None or work.loads[member] < wanted.max_partitions)
    )
    if holder == member and place not in work.forced:
        work.bound[holder] += partition not in state.topics[number].moving
    elif can_go and member is not None:
        if holder >= 0 and place not in work.forced:
            _force(work, place, holder, MoveReason.PINNED)
        work.settled.append((place, member))
        work.loads[member] += 1
        work.bound[member] += 1
        if holder == FREE:
            work.orphans[number].remove(partition)
    elif holder == FREE:
        work.orphans[number].remove(partition)
        work.unplaced[place] = Unplaced.PINNED
    elif holder >= 0 and place not in work.forced:
        work.bound[holder] += partition not in state.topics[number].moving
    # A holder that leaves keeps it until its member is there: nobody else may have it.
    elif place in work.forced and work.forced[place][1] is not MoveReason.NO_LONGER_DECLARED:
        source, reason = work.forced.pop(place)
        if reason is MoveReason.NOT_ALLOWED:
            work.loads[source] += 1  # It stays while nobody else may have it.
            work.bound[source] += 1
        else:
            work.moves.append(Move(number, partition, source, NOBODY, reason))


def cap(work: Work) -> None:
    """Take from members what is above their `max_partitions`, of what may be moved."""
    surplus = above_maximum(work)
    for place in movable(work, surplus, surplus):
        holder = work.state.topics[place[0]].at[place[1]]
        _force(work, place, holder, MoveReason.ABOVE_MAXIMUM)


def above_maximum(work: Work) -> dict[int, int]:
    """Members above their `max_partitions`, and by how many."""
    return {
        number: work.loads[number] - member.max_partitions
        for number, member in enumerate(work.state.members)
        if member.max_partitions is not None and work.loads[number] > member.max_partitions
    }


def movable(
    work: Work, members: AbstractSet[int] | Mapping[int, int], counts: Mapping[int, int]
) -> list[Partition]:
    """Return up to `counts` partitions of each member that balance may take from it."""
    state = work.state
    held: dict[int, list[tuple[int, Partition]]] = {member: [] for member in members}
    for number, topic in enumerate(state.topics):
        name = topic.name
        for partition, member in enumerate(topic.at[: topic.count]):
            if member in held and partition not in topic.moving:
                place = number, partition
                if place not in work.forced and place not in state.pins:
                    held[member].append((crc32(f"{name}:{partition}".encode()), place))
    found = []
    for member, places in held.items():
        places.sort()
        found += [place for _, place in places[: counts[member]]]
    return found
