"""Laws that every assignor must obey, and groups to check them on."""

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

from hypothesis import strategies as st

from coordinator.assignors.base import ClusterMetadata, Subscription
from coordinator.assignors.partitions import TopicPartition

Assignment = dict[str, list[TopicPartition]]
T = TypeVar("T")


Group = tuple[ClusterMetadata, dict[str, Subscription]]
"""A cluster and the members that share it."""


def tps(*names: str) -> tuple[TopicPartition, ...]:
    """`tps("t0:0,1", "t1:2")`: partitions 0 and 1 of t0 and 2 of t1."""
    pairs = (name.split(":") for name in names)
    return tuple(TopicPartition(topic, int(p)) for topic, ps in pairs for p in ps.split(","))


def wanting(
    *topics: str,
    owned: Iterable[TopicPartition] = (),
    generation: int = -1,
    rack: str | None = None,
    instance_id: str | None = None,
) -> Subscription:
    """A subscription to `topics`."""
    return Subscription(
        topics=topics,
        owned_partitions=tuple(owned),
        generation=generation,
        rack=rack,
        instance_id=instance_id,
    )


def wanted_partitions(
    view: ClusterMetadata, members: Mapping[str, Subscription]
) -> set[TopicPartition]:
    """Every partition that somebody subscribes to."""
    topics = {topic for subscription in members.values() for topic in subscription.topics}
    return {
        TopicPartition(topic, partition)
        for topic in topics
        for partition in range(view.partitions.get(topic, 0))
    }


def check_nothing_wrong(
    view: ClusterMetadata, members: Mapping[str, Subscription], assignment: Assignment
) -> None:
    """Every member is there; each partition exists, is subscribed to and is assigned once."""
    assert assignment.keys() == members.keys()
    taken = Counter(itertools.chain.from_iterable(assignment.values()))
    assert all(count == 1 for count in taken.values())
    for member_id, partitions in assignment.items():
        assert partitions == sorted(partitions)
        for topic, partition in partitions:
            assert topic in members[member_id].topics
            assert 0 <= partition < view.partitions[topic]
        assert all(isinstance(partition, TopicPartition) for partition in partitions)


def check_valid(
    view: ClusterMetadata, members: Mapping[str, Subscription], assignment: Assignment
) -> None:
    """`check_nothing_wrong`, and every wanted partition is handed out."""
    check_nothing_wrong(view, members, assignment)
    assert set(itertools.chain.from_iterable(assignment.values())) == wanted_partitions(
        view, members
    )


def check_balanced(members: Mapping[str, Subscription], assignment: Assignment) -> None:
    """No member has 2 more than another that could take one of its partitions."""
    for giver, taker in itertools.permutations(members, 2):
        if len(assignment[giver]) >= len(assignment[taker]) + 2:
            held = {topic for topic, _ in assignment[giver]}
            assert held.isdisjoint(members[taker].topics), (giver, taker)


def sizes(assignment: Assignment) -> list[int]:
    """Numbers of partitions of all members, sorted."""
    return sorted(len(partitions) for partitions in assignment.values())


def shuffled(
    view: ClusterMetadata, members: Mapping[str, Subscription], seed: int
) -> tuple[ClusterMetadata, dict[str, Subscription]]:
    """The same group with everything listed in another order."""
    rng = random.Random(seed)

    def mixed(values: Iterable[T]) -> list[T]:
        listed = list(values)
        rng.shuffle(listed)
        return listed

    return (
        ClusterMetadata(dict(mixed(view.partitions.items())), dict(mixed(view.racks.items()))),
        {
            member_id: Subscription(
                topics=tuple(mixed(subscription.topics)),
                owned_partitions=tuple(mixed(subscription.owned_partitions)),
                generation=subscription.generation,
                user_data=subscription.user_data,
                rack=subscription.rack,
                instance_id=subscription.instance_id,
            )
            for member_id, subscription in mixed(members.items())
        },
    )


TOPICS = ("a", "b", "c", "d")
RACKS = ("east", "north", "west")


@st.composite
def views(draw: st.DrawFn, with_racks: bool = False) -> ClusterMetadata:
    """Up to 4 topics of up to 6 partitions; "d" never has metadata."""
    partitions = draw(st.dictionaries(st.sampled_from(TOPICS[:3]), st.integers(0, 6)))
    if not with_racks:
        return ClusterMetadata(partitions)
    where = st.frozensets(st.sampled_from(RACKS), max_size=3)
    racks = {TopicPartition(t, p): draw(where) for t, n in partitions.items() for p in range(n)}
    return ClusterMetadata(partitions, racks)


@st.composite
def groups(
    draw: st.DrawFn, equal: bool = False, claims: bool = True, with_racks: bool = False
) -> tuple[ClusterMetadata, dict[str, Subscription]]:
    """A view and up to 6 members with wishes and, if `claims`, pasts of every kind."""
    view = draw(views(with_racks))
    topics = st.lists(st.sampled_from(TOPICS), max_size=4).map(tuple)
    common = draw(topics) if equal else None
    claim = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(-1, 3) | st.just(9))
    members = {
        f"m{number}": Subscription(
            topics=draw(topics) if common is None else common,
            owned_partitions=tuple(draw(st.lists(claim, max_size=6))) if claims else (),
            generation=draw(st.integers(-1, 2)) if claims else -1,
            rack=draw(st.none() | st.sampled_from(RACKS)) if with_racks else None,
            instance_id=draw(st.none() | st.just(f"i{9 - number}")),
        )
        for number in range(draw(st.integers(0, 6)))
    }
    return view, members
