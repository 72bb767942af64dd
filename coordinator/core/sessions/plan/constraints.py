"""First part of a plan: forced moves, unassigned partitions, and pins.

A partition that its holder may not keep has to go. One with an open hand-off stays, unless it has
to go. A pinned one is assigned here. All others are counted, by kind and holder: these are for the
balance to move.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass, field

from coordinator.core.sessions.plan.partition_kinds import Kinds
from coordinator.core.values.plans import (
    FREE,
    NOBODY,
    RESERVED,
    Move,
    MoveReason,
    Partition,
    PlanInput,
    Unplaced,
)


@dataclass(slots=True)
class Demand:
    """Partitions of a group by what may become of them.

    fixed: by member, partitions that count there and do not move.
    homes: by kind, partitions by holder that balance may move.
    free: by kind, those without a holder, ascending, by topic.
    forced: held ones that have to go, with holder and reason, and look for a member as well.
    singles: those that were looked at one by one; of these, `movable` ones count in `homes`.
    granted, moves, unplaced: what constraints alone decide: free ones with their new holders,
        moves, and what can go nowhere.
    """

    state: PlanInput
    kinds: Kinds
    fixed: list[int]
    homes: list[Counter[int]]
    free: list[dict[int, list[int]]]
    forced: dict[Partition, tuple[int, MoveReason]] = field(default_factory=dict)
    singles: set[Partition] = field(default_factory=set)
    movable: list[Partition] = field(default_factory=list)
    granted: list[tuple[Partition, int]] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    unplaced: dict[Partition, Unplaced] = field(default_factory=dict)

    def holder(self, partition: Partition) -> int:
        """The member at which a partition counts; FREE; RESERVED."""
        at = self.state.topics[partition[0]].at
        return at[partition[1]] if partition[1] < len(at) else FREE

    def load(self, member: int) -> int:
        """Number of partitions that a member holds and may keep."""
        return self.fixed[member] + sum(home[member] for home in self.homes)


def demand_of(state: PlanInput) -> Demand:
    """Apply the constraints to a group."""
    kinds = Kinds(state)
    number_of_kinds = range(len(kinds.eligible))
    demand = Demand(
        state,
        kinds,
        [0] * len(state.members),
        [Counter() for _ in number_of_kinds],
        [{} for _ in number_of_kinds],
    )
    singles = {
        topic_partition
        for topic_partition in state.pins
        if topic_partition[1] < state.topics[topic_partition[0]].count
    }
    for number, topic in enumerate(state.topics):
        singles.update((number, partition) for partition in topic.moving if partition < topic.count)
    singles.update(
        (number, partition)
        for number, partition, _ in state.barred
        if partition < state.topics[number].count
    )
    demand.singles = singles
    for number in kinds.topics:
        _count(demand, number)
    for topic_partition in singles:
        demand.homes[kinds.segment(topic_partition).kind][demand.holder(topic_partition)] -= 1
    for kind in number_of_kinds:
        _force_strays(demand, kind)
    in_order = sorted(singles, key=kinds.order)
    for topic_partition in in_order:
        if topic_partition not in state.pins:
            _sort_single(demand, topic_partition)
    for topic_partition in in_order:
        if topic_partition in state.pins:
            _pin(demand, topic_partition, state.pins[topic_partition])
    for home, eligible in zip(demand.homes, kinds.eligible, strict=True):
        if state.is_frozen or not eligible:
            for member, count in home.items():
                demand.fixed[member] += count
            home.clear()
    return demand


def _count(demand: Demand, number: int) -> None:
    """Count a topic's partitions, by kind and holder, and list the free ones."""
    topic, at = demand.state.topics[number], demand.state.topics[number].at
    for first, end, kind in demand.kinds.segments[number]:
        demand.homes[kind].update(at[first:end])
    if FREE in at:
        singles = demand.singles
        for first, end, kind in demand.kinds.segments[number]:
            free = [partition for partition, m in enumerate(at[first:end], first) if m == FREE]
            if singles:
                free = [partition for partition in free if (number, partition) not in singles]
            if free:
                demand.free[kind].setdefault(number, []).extend(free)
    for partition in range(topic.count, len(at)):
        if at[partition] >= 0 and partition not in topic.moving:
            reason = MoveReason.NO_LONGER_DECLARED
            demand.moves.append(Move(number, partition, at[partition], NOBODY, reason))


def _force_strays(demand: Demand, kind: int) -> None:
    """Force moves of partitions from members that may not hold them."""
    home, members = demand.homes[kind], demand.state.members
    del home[FREE], home[RESERVED]
    strays = home.keys() - demand.kinds.eligible[kind]
    if not strays:
        return
    for number in demand.kinds.topics:
        at = demand.state.topics[number].at
        for first, end, segment_kind in demand.kinds.segments[number]:
            if segment_kind != kind:
                continue
            wrong = {m for m in strays if members[m].leaves or members[m].declares[number] < end}
            if wrong:
                held = [
                    place_and_holder
                    for place_and_holder in enumerate(at[first:end], first)
                    if place_and_holder[1] in wrong
                ]
                for partition, holder in held:
                    topic_partition = number, partition
                    reason = _why_not(demand, topic_partition, holder)
                    if reason is not None and topic_partition not in demand.singles:
                        demand.forced[topic_partition] = holder, reason
                        home[holder] -= 1


def _why_not(demand: Demand, partition: Partition, holder: int) -> MoveReason | None:
    """Reason for which a holder may not keep a partition; None: it may."""
    member = demand.state.members[holder]
    if member.leaves:
        return MoveReason.HOLDER_LEAVES
    if partition[1] >= member.declares[partition[0]]:
        return MoveReason.NO_LONGER_DECLARED
    return MoveReason.NOT_ALLOWED if (*partition, holder) in demand.state.barred else None


def _sort_single(demand: Demand, partition: Partition) -> None:
    """Classify one partition that has an open hand-off or a barred member."""
    holder, kind = demand.holder(partition), demand.kinds.of(partition)
    if holder == FREE:
        insort(demand.free[kind].setdefault(partition[0], []), partition[1])
    elif holder != RESERVED:
        reason = _why_not(demand, partition, holder)
        if reason is not None:
            demand.forced[partition] = holder, reason
        elif partition[1] in demand.state.topics[partition[0]].moving:
            demand.fixed[holder] += 1
        else:
            demand.homes[kind][holder] += 1
            demand.movable.append(partition)


def _pin(demand: Demand, partition: Partition, member: int | None) -> None:
    """Assign a pinned partition to its member, or keep it where it is until that has capacity."""
    holder = demand.holder(partition)
    if holder == RESERVED:
        return  # For the name of a member that has announced to return.
    reason = None if holder == FREE else _why_not(demand, partition, holder)
    if reason is None and (holder == member or (holder != FREE and demand.state.is_frozen)):
        demand.fixed[holder] += 1
    elif member in demand.kinds.eligible[demand.kinds.of(partition)] and _has_room(demand, member):
        demand.fixed[member] += 1
        if holder == FREE:
            demand.granted.append((partition, member))
        else:
            demand.moves.append(Move(*partition, holder, member, reason or MoveReason.PINNED))
    elif holder == FREE:
        demand.unplaced[partition] = Unplaced.PINNED
    elif reason is None or reason is MoveReason.NOT_ALLOWED:
        demand.fixed[holder] += 1  # It stays while nobody else may have it.
    else:
        demand.moves.append(Move(*partition, holder, NOBODY, reason))


def _has_room(demand: Demand, member: int) -> bool:
    most = demand.state.members[member].max_partitions
    return most is None or demand.load(member) < most
