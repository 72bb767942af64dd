"""Partitions that members had rather not have."""

from __future__ import annotations

import pytest

from coordinator.assignors import BUILT_IN, ClusterMetadata, Subscription, TopicPartition


def t(*numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t", number) for number in numbers)


def divide(name: str, members: dict[str, Subscription], count: int = 4) -> dict[str, list[int]]:
    shares = BUILT_IN[name].assign(ClusterMetadata({"t": count}), members)
    return {member: [p.partition for p in partitions] for member, partitions in shares.items()}


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("number", range(4))
def test_an_unwanted_partition_goes_to_somebody_else(name, number):
    members = {"a": Subscription(("t",), unwanted=t(number)), "b": Subscription(("t",))}
    shares = divide(name, members)
    assert number in shares["b"]
    assert sorted(shares["a"] + shares["b"]) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_nobody_wants_is_assigned_all_the_same(name):
    members = {m: Subscription(("t",), unwanted=t(0, 1)) for m in "ab"}
    shares = divide(name, members)
    assert sorted(shares["a"] + shares["b"]) == [0, 1, 2, 3]
    assert divide(name, {"a": members["a"]}) == {"a": [0, 1, 2, 3]}


@pytest.mark.parametrize("name", BUILT_IN)
def test_it_goes_to_no_member_of_other_topics(name):
    members = {"a": Subscription(("t",), unwanted=t(0)), "b": Subscription(("u",))}
    assert divide(name, members) == {"a": [0, 1, 2, 3], "b": []}


def test_an_owner_keeps_it_and_gives_another_one_for_balance():
    """Balance would take 3 from its owner, for a member that does not want it."""
    members = {
        "a": Subscription(("t",), t(0), 7, unwanted=t(3)),
        "b": Subscription(("t",), t(4, 5), 7),
        "c": Subscription(("t",), t(1, 2, 3), 7),
    }
    assert divide("cooperative-sticky", members, 6) == {"a": [0], "b": [4, 5], "c": [1, 3]}
    members["c"] = Subscription(("t",), t(1, 3), 7)
    assert divide("cooperative-sticky", members, 6) == {"a": [0, 2], "b": [4, 5], "c": [1, 3]}
