"""Round robin: a circle that passes over those who do not want."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.assignors.base import ClusterMetadata, Subscription
from coordinator.assignors.round_robin import RoundRobinAssignor

from .laws import Assignment, check_valid, groups, shuffled, sizes, tps, wanting

assign = RoundRobinAssignor().assign

TABLE = [
    # Scenario 184.
    (
        {"t0": 1, "t1": 2, "t2": 3},
        {"C0": wanting("t0"), "C1": wanting("t0", "t1"), "C2": wanting("t0", "t1", "t2")},
        {"C0": tps("t0:0"), "C1": tps("t1:0"), "C2": tps("t1:1", "t2:0,1,2")},
    ),
    # The documented example for equal subscriptions.
    (
        {"t0": 3, "t1": 3},
        {"C0": wanting("t0", "t1"), "C1": wanting("t0", "t1")},
        {"C0": tps("t0:0,2", "t1:1"), "C1": tps("t0:1", "t1:0,2")},
    ),
    # The circle goes on after whoever took the last partition, subscribers or not.
    (
        {"t0": 1, "t1": 1, "t2": 1},
        {"C0": wanting("t0", "t2"), "C1": wanting("t2"), "C2": wanting("t1", "t2")},
        {"C0": tps("t0:0", "t2:0"), "C1": (), "C2": tps("t1:0")},
    ),
    ({"t0": 3}, {"C0": wanting("nowhere"), "C1": wanting()}, {"C0": (), "C1": ()}),
    ({"t0": 3}, {}, {}),
]


@pytest.mark.parametrize(("partitions", "members", "expected"), TABLE)
def test_table(
    partitions: dict[str, int], members: dict[str, Subscription], expected: Assignment
) -> None:
    assignment = assign(ClusterMetadata(partitions), members)
    assert assignment == {member_id: list(tp) for member_id, tp in expected.items()}


def test_static_members_keep_their_seats_when_member_ids_change() -> None:
    view = ClusterMetadata({"t": 5})
    before = assign(view, {m: wanting("t", instance_id=f"i{n}") for n, m in enumerate("xy")})
    after = assign(view, {m: wanting("t", instance_id=f"i{n}") for n, m in enumerate("yx")})
    assert (before["x"], before["y"]) == (after["y"], after["x"])


@given(groups())
def test_valid(group: tuple[ClusterMetadata, dict[str, Subscription]]) -> None:
    check_valid(*group, assign(*group))


@given(groups(), st.integers())
def test_order_of_input_changes_nothing(
    group: tuple[ClusterMetadata, dict[str, Subscription]], seed: int
) -> None:
    assert assign(*group) == assign(*shuffled(*group, seed))


@given(groups(equal=True))
def test_equal_subscriptions_get_shares_that_differ_by_at_most_one(
    group: tuple[ClusterMetadata, dict[str, Subscription]],
) -> None:
    counts = sizes(assign(*group))
    assert not counts or counts[-1] - counts[0] <= 1
