"""Round robin: a circle that passes over those who do not want."""

from hypothesis import given

from coordinator.assignors.base import ClusterMetadata
from coordinator.assignors.round_robin import RoundRobinAssignor

from .laws import Group, check_valid, groups, sizes, tps, wanting

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


def test_static_members_keep_their_seats_when_member_ids_change() -> None:
    view = ClusterMetadata({"t": 5})
    before = assign(view, {m: wanting("t", instance_id=f"i{n}") for n, m in enumerate("xy")})
    after = assign(view, {m: wanting("t", instance_id=f"i{n}") for n, m in enumerate("yx")})
    assert (before["x"], before["y"]) == (after["y"], after["x"])


@given(groups())
def test_valid(group: Group) -> None:
    check_valid(*group, assign(*group))


@given(groups(equal=True))
def test_equal_subscriptions_get_shares_that_differ_by_at_most_one(
    group: Group,
) -> None:
    counts = sizes(assign(*group))
    assert not counts or counts[-1] - counts[0] <= 1
