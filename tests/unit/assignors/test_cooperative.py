"""Cooperative sticky: nothing changes hands while its old owner may still hold it."""

import random
from dataclasses import replace

import pytest
from hypothesis import given

from coordinator.assignors import BUILT_IN, by_name
from coordinator.assignors.base import ClusterMetadata, RebalanceProtocol, Subscription
from coordinator.assignors.claims import believed_owners, held
from coordinator.assignors.consumer_protocol import encode_generation
from coordinator.assignors.cooperative import CooperativeStickyAssignor
from coordinator.assignors.sticky import StickyAssignor

from .laws import (
    Assignment,
    Group,
    check_balanced,
    check_nothing_wrong,
    check_valid,
    groups,
    tps,
    wanting,
)
from .test_sticky import next_round

assign = CooperativeStickyAssignor().assign

TABLE = [
    # Scenario 188.
    (
        {"t": 4},
        {
            "c1": wanting("t", owned=tps("t:0,1"), generation=1),
            "c2": wanting("t", owned=tps("t:0,2"), generation=1),
            "c3": wanting("t", generation=1),
        },
        {"c1": tps("t:1,3"), "c2": tps("t:2"), "c3": ()},
    ),
    # A new member waits for what another has to let go of.
    (
        {"t": 4},
        {"a": wanting("t", owned=tps("t:0,1,2,3"), generation=1), "b": wanting("t")},
        {"a": tps("t:0,1"), "b": ()},
    ),
    # A stale claim gives no right to keep, but its owner is still to be told.
    (
        {"t": 2},
        {
            "a": wanting("t", owned=tps("t:1"), generation=4),
            "b": wanting("t", generation=5),
        },
        {"a": tps("t:0"), "b": ()},
    ),
    # A believed owner keeps, whatever a stale member says.
    (
        {"t": 2},
        {
            "a": wanting("t", owned=tps("t:1"), generation=4),
            "b": wanting("t", owned=tps("t:1"), generation=5),
        },
        {"a": tps("t:0"), "b": tps("t:1")},
    ),
    # A disputed partition is not even given to one of those who claim it.
    (
        {"t": 1},
        {
            "a": wanting("t", owned=tps("t:0"), generation=1),
            "b": wanting("t", owned=tps("t:0"), generation=1),
        },
        {"a": (), "b": ()},
    ),
    # Not even if the other who claims it could not get it.
    (
        {"t": 1, "u": 1},
        {
            "a": wanting("u", owned=tps("t:0"), generation=1),
            "b": wanting("t", owned=tps("t:0"), generation=1),
        },
        {"a": tps("u:0"), "b": ()},
    ),
    # Who no longer wants a topic holds its partitions until it is told.
    (
        {"t": 1, "u": 1},
        {"a": wanting("u", owned=tps("t:0"), generation=1), "b": wanting("t", generation=1)},
        {"a": tps("u:0"), "b": ()},
    ),
    # Partitions without an owner are assigned at once.
    (
        {"t": 3},
        {"a": wanting("t", owned=tps("t:1"), generation=1)},
        {"a": tps("t:0,1,2")},
    ),
    ({"t": 3}, {}, {}),
]


def test_old_clients_say_their_generation_in_user_data() -> None:
    old = replace(wanting("t", owned=tps("t:0")), user_data=encode_generation(4))
    new = wanting("t", owned=tps("t:0"), generation=5)
    assignment = assign(ClusterMetadata({"t": 2}), {"a": old, "b": new})
    assert assignment == {"a": list(tps("t:1")), "b": list(tps("t:0"))}


def test_names_and_protocols() -> None:
    assert list(BUILT_IN) == ["range", "roundrobin", "sticky", "cooperative-sticky"]
    cooperative = by_name("cooperative-sticky")
    assert cooperative.protocols == (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)
    for name in ("range", "roundrobin", "sticky"):
        assert by_name(name).protocols == (RebalanceProtocol.EAGER,)
        assert by_name(name).name == name
    with pytest.raises(ValueError, match="choose one of range, roundrobin"):
        by_name("fair")


def check_nobody_gets_what_another_holds(
    members: dict[str, Subscription], assignment: Assignment
) -> None:
    """Only a believed owner may have a partition that somebody else says it holds."""
    believed = believed_owners({m: held(member) for m, member in members.items()})
    for member_id, partitions in assignment.items():
        for partition in partitions:
            others = [
                other
                for other, member in members.items()
                if other != member_id and partition in member.owned_partitions
            ]
            assert not others or believed.get(partition) == member_id


@given(groups(with_racks=True))
def test_never_hands_over_in_the_same_round(group: Group) -> None:
    assignment = assign(*group)
    check_nothing_wrong(*group, assignment)
    check_nobody_gets_what_another_holds(group[1], assignment)


@given(groups(with_racks=True))
def test_withholds_from_the_sticky_assignment_and_adds_nothing(group: Group) -> None:
    full = StickyAssignor().assign(*group)
    for member_id, partitions in assign(*group).items():
        assert set(partitions) <= set(full[member_id])


@given(groups(with_racks=True))
def test_the_second_round_is_complete_and_takes_nothing_away(group: Group) -> None:
    view, members = group
    first = assign(view, members)
    members = next_round(members, first, 3)
    second = assign(view, members)
    check_valid(view, members, second)
    check_balanced(members, second)
    for member_id in members:
        assert set(first[member_id]) <= set(second[member_id])
    assert assign(view, next_round(members, second, 4)) == second


@pytest.mark.parametrize("seed", range(3))
def test_hundreds_of_rounds_of_churn_keep_one_owner_each(seed: int) -> None:
    """Some changes come before the second round has completed the first."""
    rng = random.Random(seed)
    view = ClusterMetadata({f"t{number}": rng.randint(1, 8) for number in range(8)})
    topics = sorted(view.partitions)
    members: dict[str, Subscription] = {}
    quiet_rounds = 0
    for generation in range(300):
        if quiet_rounds >= 2 or rng.random() < 0.3:
            quiet_rounds = 0
            members[f"m{rng.randint(0, 20)}"] = wanting(*rng.sample(topics, rng.randint(1, 8)))
            if rng.random() < 0.5:
                del members[rng.choice(sorted(members))]
        assignment = assign(view, members)
        quiet_rounds += 1
        check_nothing_wrong(view, members, assignment)
        check_nobody_gets_what_another_holds(members, assignment)
        if quiet_rounds >= 2:
            check_valid(view, members, assignment)
            check_balanced(members, assignment)
        members = next_round(members, assignment, generation)
