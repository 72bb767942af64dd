"""Sticky: as even as possible, and then with as few moves as possible.

In this order: (1) balance; (2) a partition stays with the member that held it; (3) a
partition that has to go somewhere anyway goes where a replica is near (KIP-881). A later
wish never overrules an earlier one. In particular racks do not move a partition that could
stay. Kafka lets a foreign rack break a claim; we do not, because then a change of replicas
would move partitions, and rounds would depend on it.

**Everybody wants the same.** With n partitions and m members, n mod m of them may have one
more than the others. Members keep what they claim up to that, those who have more keep the
one more first, and what is left is dealt in a circle to whoever lacks. This keeps the most
claims that any balanced assignment can keep, so the moves are minimal; what they give up is
spread over their topics, each by its fair part. Three members,
t of 4 partitions, one claimed by nobody and one by two:

    C1 claims t-0 t-1    C2 claims t-0 t-2    C3 claims nothing
    t-0 is disputed; kept: C1 t-1, C2 t-2; left: t-0, t-3
    C3 lacks one: t-0. One may have one more, C1 is first: t-3.

**Wishes differ.** Claims are kept, the rest goes to the least loaded subscriber, topics with
few subscribers first, and `leveling` evens out: first only with the partitions that were
just placed, then with all. The sum of squared loads ends as small as it can be, so no
partition can go to a member that has 2 less. If what is claimed already fits such an
assignment, nothing claimed moves; the cooperative assignor lives on that. If it does not fit,
the moves are few (shortest paths, and swaps that bring partitions home), but not provably
fewest: one too many in 4 of 6,000 random groups small enough to try everything.

Growth, for m members, n partitions and s subscriptions (member-topic pairs):

* equal wishes: s + n, nothing is sorted but a few lists.
* different wishes: s log m + n log m to place; then the turns of `leveling`, of which there
  are none if the placing was even to within 1, and each of which is at most s + n. Few turns
  are the rule. Most is moved in chains of barely overlapping wishes (last row below): one
  leaver shifts everybody a little, 1,225 partitions in all, for balance comes first.

Best of 5 in milliseconds, CPython 3.11, one core of a shared 2-core machine, for 1,000
members, 1,000 topics, 50,000 partitions (the median of 5 is up to twice that while the other
core is busy). Eager members' pasts come out of user data, which costs 50 of the first row:

| wishes | from scratch | one leaves | one joins | 100 join |
|---|---|---|---|---|
| all topics, past in user data | 43 | 104 | 114 | |
| all topics, past in fields | 43 | 50 | 56 | 82 |
| all topics, cooperative | 45 | 91 | 91 | 117 |
| 10 random topics each | 73 | 93 | 97 | 137 |
| 500 random topics each | 463 | 426 | 479 | 571 |
| member i wants topics 0 to i | 300 | 262 | 384 | 418 |
| topics i and i + 1 | 38 | 73 | 59 | 103 |

Source: KIP-54, KIP-341, KIP-881; Kafka `AbstractStickyAssignor` for what it promises.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from heapq import heapify, heapreplace

from coordinator.assignors.base import (
    ClusterMetadata,
    RebalanceProtocol,
    Subscription,
    in_member_order,
)
from coordinator.assignors.claims import believed_owners, remembered
from coordinator.assignors.consumer_protocol import PreviousAssignment
from coordinator.assignors.leveling import Holding, level
from coordinator.assignors.partitions import TopicPartition
from coordinator.assignors.racks import place_near
from coordinator.assignors.unwanted import give_elsewhere

_NOBODY = -1


@dataclass(frozen=True, slots=True)
class StickyAssignor:
    """Balance first, then owners, then racks. Source: KIP-54; Kafka `StickyAssignor`."""

    name: str = "sticky"
    protocols: tuple[RebalanceProtocol, ...] = (RebalanceProtocol.EAGER,)

    def assign(
        self, view: ClusterMetadata, members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See `Assignor.assign`. What members held is in their user data, see `claims`."""
        pasts = {member_id: remembered(member) for member_id, member in members.items()}
        return assign_stickily(view, members, pasts)


def assign_stickily(
    view: ClusterMetadata,
    members: Mapping[str, Subscription],
    pasts: Mapping[str, PreviousAssignment],
) -> dict[str, list[TopicPartition]]:
    """Assign by the rules of this file, for members whose previous assignment is known.

    Args:
        view: the topics that exist.
        members: member id to subscription; what it says of the past does not count here.
        pasts: member id to what the member held, in which generation; same keys.
    Returns:
        Member id to its partitions, as `Assignor.assign`.
    """
    if not members:
        return {}
    table = _Table(view, members, pasts)
    if table.all_want_the_same:
        _share_equally(table)
    else:
        _share_among_subscribers(table)
    return give_elsewhere(table.assignment(), members, table.owners)


class _Table:
    """The group in numbers: members, topics and partitions count from 0 in their order."""

    def __init__(
        self,
        view: ClusterMetadata,
        members: Mapping[str, Subscription],
        pasts: Mapping[str, PreviousAssignment],
    ) -> None:
        self.member_ids = in_member_order(members)
        self.racks = [members[member_id].rack for member_id in self.member_ids]
        self.wanted = _wanted_topics(view, [members[m].topics for m in self.member_ids])
        self.all_want_the_same = all(topics == self.wanted[0] for topics in self.wanted)

        self.topics = sorted(set().union(*{id(topics): topics for topics in self.wanted}.values()))
        self.partitions: list[TopicPartition] = []
        self.first_of: dict[str, int] = {}
        self.count_of = view.partitions
        for topic in self.topics:
            self.first_of[topic] = len(self.partitions)
            self.partitions += [TopicPartition(topic, p) for p in range(view.partitions[topic])]
        self._replicas = view.racks

        self.owners = believed_owners(pasts)
        self.owner_before = self._owners_before(view)
        self.holder = list(self.owner_before)

    def _owners_before(self, view: ClusterMetadata) -> list[int]:
        """Owner of each partition: a member with a valid claim that still wants it, or _NOBODY."""
        number_of = {member_id: number for number, member_id in enumerate(self.member_ids)}
        owners = [_NOBODY] * len(self.partitions)
        for (topic, partition), member_id in self.owners.items():
            member = number_of[member_id]
            if topic in self.wanted[member] and 0 <= partition < view.partitions[topic]:
                owners[self.first_of[topic] + partition] = member
        return owners

    def near(self, partitions: Sequence[int]) -> list[frozenset[str]]:
        """Racks of the replicas of each of `partitions`."""
        nowhere: frozenset[str] = frozenset()
        return [self._replicas.get(self.partitions[p], nowhere) for p in partitions]

    def is_near(self, partition: int, member: int) -> bool:
        """True if the partition has a replica in the member's rack."""
        return self.racks[member] in self._replicas.get(self.partitions[partition], ())

    def place(self, partitions: Sequence[int], takers: list[int]) -> None:
        """Give each partition to its taker, or, with racks, to a nearer one of the takers."""
        if self._replicas:
            takers = place_near(self.near(partitions), takers, self.racks)
        for partition, taker in zip(partitions, takers, strict=True):
            self.holder[partition] = taker

    def assignment(self) -> dict[str, list[TopicPartition]]:
        """Partitions of each member, by name."""
        shares: list[list[TopicPartition]] = [[] for _ in self.member_ids]
        for partition, member in zip(self.partitions, self.holder, strict=True):
            shares[member].append(partition)
        return dict(zip(self.member_ids, shares, strict=True))


def _wanted_topics(view: ClusterMetadata, subscribed: Sequence[tuple[str, ...]]) -> list[Set[str]]:
    """Wanted topics of each member that have partitions; equal lists share one set."""
    wanted: list[Set[str]] = []
    before: tuple[str, ...] | None = None
    for topics in subscribed:
        if topics == before:
            wanted.append(wanted[-1])
        else:
            wanted.append(frozenset(t for t in topics if view.partitions.get(t, 0) > 0))
            before = topics
    return wanted


def _share_equally(table: _Table) -> None:
    """Everybody wants everything: keep up to the quota, deal the rest."""
    least, one_more = divmod(len(table.partitions), len(table.member_ids))
    kept: list[list[int]] = [[] for _ in table.member_ids]
    left: list[int] = []
    for partition, owner in enumerate(table.owner_before):
        (left if owner == _NOBODY else kept[owner]).append(partition)

    for member, partitions in enumerate(kept):
        if len(partitions) > least:
            quota = least
            if one_more > 0:
                quota += 1
                one_more -= 1
            if len(partitions) > quota:
                partitions = _evenly_by_topic(table, member, partitions)
                left += partitions[quota:]
                kept[member] = partitions[:quota]
    left.sort()

    takers: list[int] = []
    lacking = list(range(len(kept)))
    missing = [least - len(partitions) for partitions in kept]
    while lacking := [member for member in lacking if missing[member] > 0]:
        takers += lacking
        for member in lacking:
            missing[member] -= 1
    at_least = (member for member, partitions in enumerate(kept) if len(partitions) <= least)
    takers += [next(at_least) for _ in range(one_more)]
    table.place(left, takers)


def _evenly_by_topic(table: _Table, member: int, partitions: list[int]) -> list[int]:
    """Partitions of a member in the order in which it keeps them: near ones first, then by how far
    each is within the member's fair part of its topic.

    So a member that gives half away gives half of each topic: whoever takes it must not get all of
    a busy topic (KAFKA-16277).
    """
    members, size = len(table.member_ids), len(table.partitions)
    far = members * size * size if table.racks[member] else 0  # Beyond all that is near.
    ranks: list[int] = []  # A number for (far, beyond, partition): no tuple to build.
    topic, beyond = "", 0
    for partition in partitions:  # In the order of topics.
        if table.partitions[partition].topic != topic:
            topic = table.partitions[partition].topic
            beyond = -table.count_of[topic]
        beyond += members
        rank = beyond * size + partition
        ranks.append(rank + far if far and not table.is_near(partition, member) else rank)
    ranks.sort()
    return [rank % size for rank in ranks]


def _share_among_subscribers(table: _Table) -> None:
    """Wishes differ: keep all claims, place the rest, level, and settle the details."""
    number_of = {topic: number for number, topic in enumerate(table.topics)}
    wanted = [{number_of[topic] for topic in topics} for topics in table.wanted]
    subscribers: list[list[int]] = [[] for _ in table.topics]
    for member, topics in enumerate(wanted):
        for topic in topics:
            subscribers[topic].append(member)

    claimed: Holding = [{} for _ in table.topics]
    left: list[list[int]] = [[] for _ in table.topics]
    loads = [0] * len(table.member_ids)
    for partition, owner in enumerate(table.owner_before):
        topic = number_of[table.partitions[partition].topic]
        if owner == _NOBODY:
            left[topic].append(partition)
        else:
            claimed[topic].setdefault(owner, []).append(partition)
            loads[owner] += 1

    holding = _place_on_least_loaded(left, subscribers, loads)

    def move(topic: int, giver: int, taker: int) -> None:
        """Hand over a partition of the topic, one that gets nearer if there is one."""
        partitions = holding[topic][giver]
        partition = max(partitions, key=lambda p: table.is_near(p, taker) - table.is_near(p, giver))
        partitions.remove(partition)
        if not partitions:
            del holding[topic][giver]
        holding[topic].setdefault(taker, []).append(partition)

    level(loads, wanted, holding, move)
    for topic, holders in enumerate(claimed):
        for owner, partitions in holders.items():
            holding[topic].setdefault(owner, []).extend(partitions)
    level(loads, wanted, holding, move)

    for holders in holding:
        moved: list[int] = []
        for member, partitions in sorted(holders.items()):
            for partition in partitions:
                table.holder[partition] = member
                if table.owner_before[partition] != member:
                    moved.append(partition)
        moved.sort()
        _send_home(table, moved)
        away = [p for p in moved if table.holder[p] != table.owner_before[p]]
        table.place(away, [table.holder[partition] for partition in away])


def _place_on_least_loaded(
    left: list[list[int]], subscribers: list[list[int]], loads: list[int]
) -> Holding:
    """Deal each topic's partitions to its least loaded subscribers; `loads` is changed."""
    holding: Holding = [{} for _ in left]
    for topic in sorted(range(len(left)), key=lambda topic: len(subscribers[topic])):
        if left[topic]:
            # A number for (load, member): one comparison, and no tuple to build.
            queue = [loads[member] * len(loads) + member for member in subscribers[topic]]
            heapify(queue)
            for partition in left[topic]:
                load, member = divmod(queue[0], len(loads))
                heapreplace(queue, queue[0] + len(loads))
                loads[member] = load + 1
                holding[topic].setdefault(member, []).append(partition)
    return holding


def _send_home(table: _Table, moved: list[int]) -> None:
    """Swap partitions of one topic where that brings one back to its owner.

    Paths that cross may have taken from a member what it later gets back in another guise.
    """
    guests: dict[int, list[int]] = {}
    for partition in moved:
        guests.setdefault(table.holder[partition], []).append(partition)
    for partition in moved:
        owner, host = table.owner_before[partition], table.holder[partition]
        if owner != host and guests.get(owner):
            other = guests[owner].pop()
            guests[host].remove(partition)
            if host != table.owner_before[other]:
                guests[host].append(other)
            table.holder[partition], table.holder[other] = owner, host
