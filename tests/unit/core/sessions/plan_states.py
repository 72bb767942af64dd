"""States of groups for tests of the planner, and what a plan makes of them."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from random import Random

from hypothesis import strategies as st

from coordinator.core.values.plans import FREE, RESERVED, Plan, PlanInput, PlanMember, PlanTopic

NAMES = ("w-a", "w-b", "w-c", "w-d")


def flat(ranges: tuple[tuple[int, int], ...]) -> list[int]:
    return [partition for first, last in ranges for partition in range(first, last + 1)]


def after(state: PlanInput, made: Plan) -> list[list[int]]:
    """The holders after a plan."""
    at = [list(topic.at) for topic in state.topics]
    for member, by_topic in made.grants.items():
        for topic, partitions in by_topic.items():
            for partition in flat(partitions):
                assert at[topic][partition] == FREE
                at[topic][partition] = member
    for move in made.moves:
        assert at[move.topic][move.partition] == move.source != move.target
        at[move.topic][move.partition] = move.target
    return at


def following(state: PlanInput, at: list[list[int]]) -> PlanInput:
    """The same group with other holders."""
    topics = tuple(
        PlanTopic(topic.name, topic.count, holders, topic.moving)
        for topic, holders in zip(state.topics, at, strict=True)
    )
    return replace(state, topics=topics)


def reordered(state: PlanInput, members: list[int], topics: list[int]) -> PlanInput:
    """The same group with its members and topics in another order."""
    member = {FREE: FREE, RESERVED: RESERVED} | {old: new for new, old in enumerate(members)}
    topic = {old: new for new, old in enumerate(topics)}
    return PlanInput(
        tuple(
            found._replace(declares=tuple(found.declares[old] for old in topics))
            for found in (state.members[old] for old in members)
        ),
        tuple(
            replace(found, at=[member[holder] for holder in found.at])
            for found in (state.topics[old] for old in topics)
        ),
        {
            (topic[number], p): None if to is None else member[to]
            for (number, p), to in state.pins.items()
        },
        frozenset((topic[number], p, member[m]) for number, p, m in state.barred),
        {(topic[number], p): member[m] for (number, p), m in state.previous.items()},
        {(topic[number], p): weight for (number, p), weight in state.weights.items()},
        state.is_frozen,
    )


def loads(state: PlanInput, at: list[list[int]]) -> list[int]:
    """Partitions of each member, without those that nobody declares."""
    counts = [0] * len(state.members)
    for topic, holders in zip(state.topics, at, strict=True):
        for member in holders[: topic.count]:
            if member >= 0:
                counts[member] += 1
    return counts


def may_have(state: PlanInput, member: int, topic: int, partition: int) -> bool:
    """True if a partition may be given to a member."""
    found = state.members[member]
    return (
        found.receives
        and not found.leaves
        and found.capacity > 0
        and partition < found.declares[topic]
        and (topic, partition, member) not in state.barred
    )


def must_go(state: PlanInput, topic: int, partition: int, holder: int) -> bool:
    """True if a partition may not stay with its holder."""
    found = state.members[holder]
    return (
        found.leaves
        or partition >= found.declares[topic]
        or (topic, partition, holder) in state.barred
    )


@st.composite
def states(draw: st.DrawFn, *, same: bool = False) -> PlanInput:
    """Small groups in any state; `same`: all members may have the same."""
    count = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    members = tuple(
        PlanMember(
            NAMES[n],
            tuple(sizes) if same else tuple(draw(st.integers(0, size)) for size in sizes),
            receives=draw(st.integers(0, 4)) > 0,
            leaves=draw(st.integers(0, 6)) == 0,
            max_partitions=draw(st.sampled_from([None, None, None, 1, 3])),
        )
        for n in range(count)
    )
    topics = tuple(
        PlanTopic(
            f"t{n}",
            max(member.declares[n] for member in members),
            draw(
                st.lists(
                    st.integers(-1, count - 1),
                    min_size=max(member.declares[n] for member in members),
                    max_size=max(member.declares[n] for member in members),
                )
            ),
        )
        for n in range(len(sizes))
    )
    return PlanInput(members, topics)


def random_state(
    random: Random, *, members: int, partitions: int, plain: bool = False
) -> PlanInput:
    """A group in any state; `plain`: nothing is kept, moving, barred, pinned or bounded.

    Partitions are in up to four topics; half of all groups are of members that may have the same.
    """
    count = random.randint(1, members)
    sizes = [random.randint(0, partitions) // 2 + 1 for _ in range(random.randint(1, 4))]
    is_even, is_weighted = random.random() < 0.5, random.random() < 0.4
    made = tuple(
        PlanMember(
            f"w-{n}",
            tuple(sizes if is_even else (_declares(random, size) for size in sizes)),
            capacity=random.choice([0.25, 1, 2, 3.5]) if is_weighted and not plain else 1.0,
            receives=plain or random.random() < 0.9,
            leaves=not plain and random.random() < 0.1,
            max_partitions=None if plain or random.random() < 0.8 else random.randint(0, 8),
        )
        for n in range(count)
    )
    topics = []
    for number, size in enumerate(sizes):
        declared = max(member.declares[number] for member in made)
        held = [random.randint(0, count - 1) for _ in range(random.randint(1, count))]
        at = [
            random.choice([*held, FREE]) if plain else random.choice([*held, *held, FREE, RESERVED])
            for _ in range(size)
        ]
        moving = frozenset(
            p for p in range(declared) if not plain and at[p] >= 0 and random.random() < 0.1
        )
        topics.append(PlanTopic(f"t{number}", declared, at[: declared if plain else size], moving))
    barred, pins = set(), {}
    for _ in range(0 if plain else random.choice([0, 0, 0, 1, 4])):
        topic = random.randrange(len(topics))
        if topics[topic].count:
            topic_partition = topic, random.randrange(topics[topic].count)
            barred.add((*topic_partition, random.randrange(count)))
            # A pin to a member that is full waits until it is not: that is no plan's end.
            if random.random() < 0.4 and all(m.max_partitions is None for m in made):
                pins[topic_partition] = random.choice([None, random.randrange(count)])
    previous = {
        (number, partition): random.randrange(count)
        for number, topic in enumerate(topics)
        for partition in range(len(topic.at))
        if random.random() < 0.5
    }
    return PlanInput(made, tuple(topics), pins, frozenset(barred), previous)


def _declares(random: Random, size: int) -> int:
    return random.choice([0, size // 2, size, size])


SORTS = ("equal members", "capacities", "declarations", "constraints", "all of these")
"""Groups by what makes their members differ."""


def oracle_state(
    random: Random, sort: str, *, members: int = 12, topics: int = 3, partitions: int = 20
) -> PlanInput:
    """A group of one of the `SORTS`, with up to so many members, topics, and partitions of each.

    Nobody has more than its `max_partitions` before the plan, so the best plan is a flow.
    """
    count = random.randint(1, members)
    sizes = [random.randint(1, partitions) for _ in range(random.randint(1, topics))]
    is_any = sort == "all of these"
    differ, bounded = is_any or sort == "declarations", is_any or sort == "constraints"
    capacities = (0.5, 1, 1.5, 2, 3) if is_any or sort == "capacities" else (1,)
    made = [
        PlanMember(
            f"w-{n}",
            tuple(_declares(random, size) for size in sizes) if differ else tuple(sizes),
            capacity=random.choice(capacities),
            receives=not bounded or random.random() < 0.9,
            leaves=bounded and random.random() < 0.1,
        )
        for n in range(count)
    ]
    named = []
    for number in range(len(sizes)):
        declared = max(member.declares[number] for member in made)
        held = [random.randint(0, count - 1) for _ in range(random.randint(1, count))]
        at = [random.choice([*held, FREE, *[RESERVED] * bounded]) for _ in range(declared)]
        moving = {p for p in range(declared) if bounded and at[p] >= 0 and random.random() < 0.1}
        named.append(PlanTopic(f"t{number}", declared, at, frozenset(moving)))
    state = PlanInput(tuple(made), tuple(named))
    if not bounded:
        return state
    counts = loads(state, [list(topic.at) for topic in named])
    for number in range(count):
        if random.random() < 0.2:
            made[number] = made[number]._replace(
                max_partitions=counts[number] + random.randint(0, 4)
            )
    barred = set()
    for _ in range(random.choice([0, 0, 1, 4])):
        topic = random.randrange(len(named))
        if named[topic].count:
            partition, member = random.randrange(named[topic].count), random.randrange(count)
            if named[topic].at[partition] != member:
                barred.add((topic, partition, member))
    return PlanInput(tuple(made), tuple(named), barred=frozenset(barred))


def weighted_state(random: Random, sort: str) -> PlanInput:
    """A group of one of the `SORTS`, with up to 5 members and 12 partitions of some weights.

    In half of those without a maximum few partitions are free.
    """
    state = oracle_state(random, sort, members=5, topics=2, partitions=6)
    heaviest = random.choice([2, 10, 100])
    weights = {
        (number, partition): ceil(heaviest ** random.random())
        if heaviest == 100
        else random.randint(1, heaviest)
        for number, topic in enumerate(state.topics)
        for partition in range(topic.count)
    }
    if random.random() < 0.5 and all(m.max_partitions is None for m in state.members):
        state = following(state, [_all_held(random, state, n) for n in range(len(state.topics))])
    return replace(state, weights=weights)


def _all_held(random: Random, state: PlanInput, number: int) -> list[int]:
    """Holders of a topic's partitions: of free ones, some member that may have each."""
    holders = list(state.topics[number].at)
    for partition, holder in enumerate(holders):
        able = [m for m in range(len(state.members)) if may_have(state, m, number, partition)]
        if holder == FREE and able:
            holders[partition] = able[min(random.randrange(len(able)), 1)]
    return holders
