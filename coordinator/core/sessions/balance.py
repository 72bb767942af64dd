"""Second half of a plan for members of which each may have every partition.

Quotas say how many partitions each should have, and the moves are the fewest by which all get
there. It costs some passes over the partitions.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from math import floor, inf
from zlib import crc32

from coordinator.core.session_values.plans import (
    NOBODY,
    Move,
    MoveReason,
    Partition,
    Plan,
    Range,
    Unplaced,
)
from coordinator.core.sessions.hard_rules import (
    Work,
    cap,
    movable,
)
from coordinator.core.sessions.holdings import ranges_of

EPSILON = 1e-9
STAYS_WITHOUT_TARGET = frozenset({MoveReason.ABOVE_MAXIMUM, MoveReason.NOT_ALLOWED})
"""Reasons that take nothing from a holder while nobody else may have it."""

Placed = dict[Partition, int]
Grants = dict[int, dict[int, list[int]]]
"""Partitions by member and topic."""


def even(work: Work) -> Plan:
    """Plan for members that may all have the same partitions."""
    receivers = work.receivers()
    if not receivers:
        return nobody(work)
    cap(work)
    members = work.state.members
    settled = {place for place, _ in work.settled}
    waiting = sum(map(len, work.orphans.values())) + sum(
        place not in settled for place in work.forced
    )
    total = waiting + sum(work.loads[member] for member in receivers)
    wanted = _quotas(work, receivers, total)
    surplus = {
        member: work.loads[member] - quota
        for member, quota in wanted.items()
        if work.loads[member] > quota
    }
    shed = movable(work, surplus, surplus) if surplus else []
    room = {member: max(0, quota - work.loads[member]) for member, quota in wanted.items()}
    grants: Grants = {}
    if work.state.previous:
        _give_back(work, room, grants)
    order = sorted(room, key=lambda member: crc32(members[member].name.encode()))
    players = deque(member for member in order if room[member] > 0)
    for topic, partitions in work.orphans.items():
        dealt = _deal(topic, partitions, players, room, grants)
        work.unplaced.update(
            dict.fromkeys(((topic, rest) for rest in partitions[dealt:]), Unplaced.CAPACITY)
        )
    targets: Placed = {}
    for place in (*_most_urgent_first(work, set(receivers)), *shed):
        if players and place not in settled:
            targets[place] = players[0]
            _take_seat(players, room)
    return finished(work, grants, targets, [(place, MoveReason.BALANCE) for place in shed])


def _most_urgent_first(work: Work, receivers: set[int]) -> list[Partition]:
    """Partitions that have to go: first those that may stay nowhere.

    Then those above a maximum, some of which may have to stay: from members that receive, whose
    loads count for the balance, the hottest first.
    """
    keys: dict[Partition, tuple[bool, bool, float]] = {}
    left: Counter[int] = Counter()
    for place, (holder, reason) in work.forced.items():
        if reason is MoveReason.ABOVE_MAXIMUM:
            left[holder] += 1
            load, capacity = work.loads[holder] + left[holder], work.state.members[holder].capacity
            price = (2 * load - 1) / capacity if capacity else inf
            keys[place] = True, holder not in receivers, -price
        else:
            keys[place] = False, False, 0
    return sorted(work.forced, key=lambda place: keys[place])


def finished(
    work: Work, grants: Grants, targets: Placed, shed: Iterable[tuple[Partition, MoveReason]]
) -> Plan:
    """Make a plan of what the rules have settled, and of where everything else goes.

    Args:
        grants: free partitions, by their new holders.
        targets: where held ones go that have to, or that are taken from their holders (`shed`).
    """
    topics = work.state.topics
    moves = list(work.moves)
    for place, member in work.settled:
        if place in work.forced:
            targets[place] = member
        else:
            _grant(grants, place, member)
    for place, (source, reason) in work.forced.items():
        target = targets.get(place, NOBODY)
        if target != NOBODY or reason not in STAYS_WITHOUT_TARGET:
            moves.append(Move(*place, source, target, reason))
    for place, reason in shed:
        if place in targets:
            source = topics[place[0]].at[place[1]]
            moves.append(Move(*place, source, targets[place], reason))
    ranges = {
        member: {topic: _ranges_of(partitions) for topic, partitions in by_topic.items()}
        for member, by_topic in grants.items()
    }
    return Plan(ranges, tuple(moves), work.unplaced)


def _ranges_of(partitions: list[int]) -> tuple[Range, ...]:
    partitions.sort()
    if partitions[-1] - partitions[0] == len(partitions) - 1:
        return ((partitions[0], partitions[-1]),)
    return ranges_of(partitions)


def nobody(work: Work) -> Plan:
    """Plan for a group in which nobody receives: what has to go goes nowhere."""
    for topic, partitions in work.orphans.items():
        free = ((topic, partition) for partition in partitions)
        work.unplaced.update(dict.fromkeys(free, Unplaced.NOBODY_RECEIVES))
    return finished(work, {}, {}, ())


def _grant(grants: Grants, place: Partition, member: int) -> None:
    grants.setdefault(member, {}).setdefault(place[0], []).append(place[1])


# --- Members that may have the same ---


def _quotas(work: Work, receivers: Sequence[int], total: int) -> dict[int, int]:
    """Target load of each member: floor or ceiling of its share, within its bounds."""
    members, loads = work.state.members, work.loads
    low = {member: work.bound[member] for member in receivers}
    high = {
        member: max(low[member], min(total, members[member].max_partitions or total))
        if members[member].max_partitions != 0
        else low[member]
        for member in receivers
    }
    quotas: dict[int, int] = {}
    free, left = list(receivers), total
    share: dict[int, float] = {}
    while free:
        capacity = sum(members[member].capacity for member in free)
        share = {member: left * members[member].capacity / capacity for member in free}
        above = [member for member in free if share[member] > high[member] + EPSILON]
        below = [member for member in free if share[member] < low[member] - EPSILON]
        if not above and not below:
            break
        over = sum(share[member] - high[member] for member in above)
        under = sum(low[member] - share[member] for member in below)
        clamped = above if over >= under else below
        for member in clamped:
            quotas[member] = high[member] if over >= under else low[member]
            left -= quotas[member]
        free = [member for member in free if member not in quotas]
    floors = {member: floor(share[member] + EPSILON) for member in free}
    quotas |= floors
    extra = left - sum(floors.values()) if free else 0
    broken = [member for member in free if share[member] - floors[member] > EPSILON]
    # Members that hold more than the floor already come first, so that less moves.
    broken.sort(
        key=lambda member: (
            loads[member] <= floors[member],
            crc32(members[member].name.encode()),
        )
    )
    for member in broken[:extra]:
        quotas[member] += 1
    return quotas


def _give_back(work: Work, room: dict[int, int], grants: Grants) -> None:
    """Grant free partitions to the members that had them last, as far as these have room."""
    previous = work.state.previous
    for topic, partitions in work.orphans.items():
        rest = []
        for partition in partitions:
            member = previous.get((topic, partition), NOBODY)
            if room.get(member, 0):
                _grant(grants, (topic, partition), member)
                room[member] -= 1
            else:
                rest.append(partition)
        work.orphans[topic] = rest


def _deal(
    topic: int, partitions: list[int], players: deque[int], room: dict[int, int], grants: Grants
) -> int:
    """Deal out a topic's partitions in turn; return how many have found a place.

    Whoever is next goes on with the next topic, so that each topic is spread over all.
    """
    position = 0
    while position < len(partitions) and players:
        seats = len(players)
        if len(partitions) - position < seats:
            _grant(grants, (topic, partitions[position]), players[0])
            _take_seat(players, room)
            position += 1
            continue
        least_room = min(room[member] for member in players)
        rounds = min(least_room, (len(partitions) - position) // seats)
        hand = partitions[position : position + rounds * seats]
        # In ranges, of which records and messages are made.
        for seat, member in enumerate(players):
            run = hand[seat * rounds : (seat + 1) * rounds]
            grants.setdefault(member, {}).setdefault(topic, []).extend(run)
            room[member] -= rounds
        position += len(hand)
        full = [member for member in players if not room[member]]
        if full:
            left = [member for member in players if room[member]]
            players.clear()
            players.extend(left)
    return position


def _take_seat(players: deque[int], room: dict[int, int]) -> None:
    """Note that the first of the players has been given one."""
    member = players.popleft()
    room[member] -= 1
    if room[member]:
        players.append(member)
