"""Sticky: balance, then owners, then racks."""

import itertools
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.assignors.base import ClusterMetadata, Subscription
from coordinator.assignors.claims import believed_owners, remembered
from coordinator.assignors.consumer_protocol import (
    PreviousAssignment,
    encode_previous_assignment,
)
from coordinator.assignors.partitions import TopicPartition
from coordinator.assignors.sticky import StickyAssignor

from .laws import (
    Assignment,
    Group,
    check_balanced,
    check_valid,
    groups,
    sizes,
    tps,
    wanted_partitions,
    wanting,
)

assign = StickyAssignor().assign

TABLE = [
    # Scenario 187: the newer generation keeps what both claim.
    (
        {"t": 3, "t2": 3},
        {
            "new": wanting("t", "t2", owned=tps("t:0,2", "t2:1"), generation=5),
            "old": wanting("t", "t2", owned=tps("t:0,2", "t2:1"), generation=4),
        },
        {"new": tps("t:0,2", "t2:1"), "old": tps("t:1", "t2:0,2")},
    ),
    # Scenario 187: so it does against no generation at all.
    (
        {"t": 3, "t2": 3},
        {
            "a": wanting("t", "t2", owned=tps("t:0,2", "t2:1")),
            "b": wanting("t", "t2", owned=tps("t:0,2", "t2:1"), generation=4),
        },
        {"a": tps("t:1", "t2:0,2"), "b": tps("t:0,2", "t2:1")},
    ),
    # A stale claim is void even if nobody else claims the partition.
    (
        {"t": 2},
        {
            "a": wanting("t", owned=tps("t:1"), generation=4),
            "b": wanting("t", generation=5),
        },
        {"a": tps("t:0"), "b": tps("t:1")},
    ),
    # Equal generations that claim the same void each other.
    (
        {"t": 4},
        {
            "c1": wanting("t", owned=tps("t:0,1"), generation=1),
            "c2": wanting("t", owned=tps("t:0,2"), generation=1),
            "c3": wanting("t", generation=1),
        },
        {"c1": tps("t:1,3"), "c2": tps("t:2"), "c3": tps("t:0")},
    ),
    # Nobody had anything: dealt in a circle.
    (
        {"t0": 3, "t1": 2},
        {"a": wanting("t0", "t1"), "b": wanting("t1", "t0")},
        {"a": tps("t0:0,2", "t1:1"), "b": tps("t0:1", "t1:0")},
    ),
    # One member leaves: the other keeps everything and takes over.
    (
        {"t": 4},
        {"b": wanting("t", owned=tps("t:1,3"), generation=1)},
        {"b": tps("t:0,1,2,3")},
    ),
    # Claims to what does not exist, or is no longer wanted, or is listed twice.
    (
        {"t": 2, "u": 2},
        {
            "a": wanting("t", owned=tps("t:7,-1,1,1", "gone:0", "u:0"), generation=1),
            "b": wanting("u", "t", generation=1),
        },
        {"a": tps("t:0,1"), "b": tps("u:0,1")},
    ),
    # A partition reaches the idle member through another: x to y to z.
    (
        {"t": 2, "u": 2},
        {
            "x": wanting("t", owned=tps("t:0,1"), generation=1),
            "y": wanting("t", "u", owned=tps("u:0,1"), generation=1),
            "z": wanting("u", generation=1),
        },
        {"x": tps("t:0,1"), "y": tps("u:1"), "z": tps("u:0")},
    ),
    ({"t": 3}, {"a": wanting("nowhere"), "b": wanting()}, {"a": (), "b": ()}),
    ({"t": 3}, {}, {}),
]


def test_the_past_is_read_from_user_data_and_garbage_is_no_past() -> None:
    past = encode_previous_assignment(PreviousAssignment(tps("t:0,3"), 7))
    members = {
        "a": wanting("t"),
        "b": replace(wanting("t"), user_data=past),
        "c": replace(wanting("t"), user_data=b"\xff"),
    }
    assignment = assign(ClusterMetadata({"t": 6}), members)
    assert assignment["b"] == list(tps("t:0,3"))
    check_valid(ClusterMetadata({"t": 6}), members, assignment)


@given(groups())
def test_valid_and_balanced(group: Group) -> None:
    assignment = assign(*group)
    check_valid(*group, assignment)
    check_balanced(group[1], assignment)


@given(groups(equal=True, with_racks=True))
def test_equal_subscriptions_move_only_what_balance_demands(group: Group) -> None:
    view, members = group
    if not members:
        return
    assignment = assign(view, members)
    counts = sizes(assignment)
    assert counts[-1] - counts[0] <= 1

    wanted = wanted_partitions(view, members)
    pasts = {member_id: remembered(member) for member_id, member in members.items()}
    claims = {tp: m for tp, m in believed_owners(pasts).items() if tp in wanted}
    claimed = Counter(claims.values())
    least, one_more = divmod(len(wanted), len(members))
    most_that_can_stay = sum(min(claimed[m], least) for m in members) + min(
        one_more, sum(claimed[m] > least for m in members)
    )
    assert sum(tp in assignment[m] for tp, m in claims.items()) == most_that_can_stay


@given(groups(with_racks=True))
def test_the_same_group_again_moves_nothing(group: Group) -> None:
    view, members = group
    assignment = assign(view, members)
    assert assign(view, next_round(members, assignment, 9)) == assignment


@given(groups(claims=False), st.integers(0, 5))
def test_whoever_stays_keeps_everything_when_equal_members_leave(group: Group, leaver: int) -> None:
    view, members = group
    members = {member_id: wanting("a", "b", "c") for member_id in members}
    before = assign(view, members)
    staying = {m: s for m, s in next_round(members, before, 1).items() if m != f"m{leaver}"}
    after = assign(view, staying)
    for member_id in staying:
        assert set(before[member_id]) <= set(after[member_id])


def _squares(counts: list[int]) -> int:
    return sum(count * count for count in counts)


@given(groups())
def test_no_assignment_is_more_even(group: Group) -> None:
    """Against all assignments, for groups small enough to list them."""
    view, members = group
    view = ClusterMetadata({topic: min(count, 2) for topic, count in view.partitions.items()})
    members = dict(list(members.items())[:4])
    takers = [
        [m for m, subscription in members.items() if topic in subscription.topics]
        for topic, _ in sorted(wanted_partitions(view, members))
    ]
    best = min(_squares(list(Counter(choice).values())) for choice in itertools.product(*takers))
    assert _squares(sizes(assign(view, members))) == best


@given(groups(with_racks=True))
def test_racks_change_neither_balance_nor_number_of_moves(group: Group) -> None:
    view, members = group
    with_racks, without = assign(view, members), assign(ClusterMetadata(view.partitions), members)
    assert _squares(sizes(with_racks)) == _squares(sizes(without))
    check_valid(view, members, with_racks)
    check_balanced(members, with_racks)


@given(groups(equal=True, with_racks=True, claims=False))
def test_from_scratch_racks_are_never_farther_than_without(group: Group) -> None:
    view, members = group

    def near_count(assignment: Assignment) -> int:
        return sum(
            members[m].rack in view.racks.get(tp, ())
            for m, tps_ in assignment.items()
            for tp in tps_
        )

    assert near_count(assign(view, members)) >= near_count(
        assign(ClusterMetadata(view.partitions), members)
    )


def test_what_has_to_move_moves_near() -> None:
    racks = {tp: frozenset({"west" if tp.partition % 2 else "east"}) for tp in tps("t:0,1,2,3")}
    members = {
        "a": wanting("t", rack="east", owned=tps("t:0,1,2,3"), generation=1),
        "b": wanting("t", rack="west", generation=1),
    }
    assert assign(ClusterMetadata({"t": 4}, racks), members) == {
        "a": list(tps("t:0,2")),
        "b": list(tps("t:1,3")),
    }


def check_no_swap_brings_a_partition_home(
    members: dict[str, Subscription], assignment: Assignment
) -> None:
    """No member lost a partition of a topic and got another of the same topic for it."""
    owner = {tp: m for m, member in members.items() for tp in member.owned_partitions}
    for host, partitions in assignment.items():
        for partition in partitions:
            old_owner = owner.get(partition, host)
            if old_owner != host and partition.topic in members[old_owner].topics:
                assert not [
                    other
                    for other in assignment[old_owner]
                    if other.topic == partition.topic and owner.get(other) != old_owner
                ]


def next_round(
    members: dict[str, Subscription], assignment: Assignment, generation: int
) -> dict[str, Subscription]:
    """The members as they join again after they received `assignment`."""
    return {
        member_id: replace(
            member,
            owned_partitions=tuple(assignment[member_id]),
            generation=generation,
            user_data=None,
        )
        for member_id, member in members.items()
    }


@pytest.mark.parametrize("seed", range(3))
def test_hundreds_of_rounds_of_churn_stay_valid_and_balanced(seed: int) -> None:
    """Scenario 185. Members come, go and change their minds; topics come and grow."""
    rng = random.Random(seed)
    partitions = {f"t{number}": rng.randint(1, 8) for number in range(8)}
    members: dict[str, Subscription] = {}
    for generation in range(200):
        for _ in range(rng.randint(0, 3)):
            wishes = rng.sample(sorted(partitions), rng.randint(0, len(partitions)))
            members[f"m{rng.randint(0, 99)}"] = wanting(*wishes)
        for member_id in rng.sample(sorted(members), min(len(members), rng.randint(0, 2))):
            del members[member_id]
        if members and rng.random() < 0.3:
            member_id = rng.choice(sorted(members))
            wishes = rng.sample(sorted(partitions), rng.randint(0, len(partitions)))
            members[member_id] = replace(members[member_id], topics=tuple(wishes))
        if rng.random() < 0.1:
            topic = f"t{rng.randint(0, 11)}"
            partitions[topic] = partitions.get(topic, 0) + rng.randint(1, 3)
        view = ClusterMetadata(dict(partitions))
        assignment = assign(view, members)
        check_valid(view, members, assignment)
        check_balanced(members, assignment)
        check_no_swap_brings_a_partition_home(members, assignment)
        members = next_round(members, assignment, generation)


def test_a_joiner_takes_its_share_and_nothing_else_moves() -> None:
    view = ClusterMetadata({f"t{number}": 10 for number in range(10)})
    wishes = tuple(view.partitions)
    members = {f"m{number}": wanting(*wishes) for number in range(9)}
    before = assign(view, members)
    after = assign(view, next_round(members, before, 1) | {"new": wanting(*wishes)})
    assert len(after["new"]) == 10
    moved: set[TopicPartition] = set().union(*(set(before[m]) - set(after[m]) for m in before))
    assert moved == set(after["new"])


# --- Who takes from a member takes of each topic (KAFKA-16277) ------------------------------------


@pytest.mark.parametrize(
    ("topics", "comers", "parts"),
    [
        ({"audit": 8, "clicks": 8}, {"b": ("audit", "clicks")}, {"audit": 4, "clicks": 4}),
        ({"audit": 4, "clicks": 12}, {"b": ("audit", "clicks")}, {"audit": 2, "clicks": 6}),
        (
            {"audit": 9, "clicks": 9},
            {"b": ("audit", "clicks"), "c": ("audit", "clicks")},
            {"audit": 3, "clicks": 3},
        ),
        # Wishes differ.
        (
            {"audit": 8, "clicks": 8, "x": 2},
            {"b": ("audit", "clicks", "x")},
            {"audit": 4, "clicks": 4},
        ),
    ],
)
def test_a_member_that_gives_up_what_is_too_much_gives_of_each_topic(topics, comers, parts):
    all_of = tuple(TopicPartition(t, p) for t in ("audit", "clicks") for p in range(topics[t]))
    members = {"a": wanting("audit", "clicks", owned=all_of, generation=1)}
    members |= {name: wanting(*wants) for name, wants in comers.items()}
    past = encode_previous_assignment(PreviousAssignment(all_of, 1))
    members["a"] = replace(members["a"], user_data=past)
    given = assign(ClusterMetadata(topics), members)
    assert len(given["a"]) == -(-sum(topics.values()) // len(members)), "no more moves than needed"
    for name in members:
        found = Counter(partition.topic for partition in given[name])
        for topic, fair in parts.items():
            assert abs(found[topic] - fair) <= ("x" in topics), (name, dict(found))
