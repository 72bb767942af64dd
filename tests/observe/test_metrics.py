"""Series of single groups: those on the list, and no others."""

from __future__ import annotations

from prometheus_client import generate_latest

from coordinator.observe.metrics import Metrics
from coordinator.shard.shard import GroupStats

GROUPS = [
    GroupStats("orders-1", 2, {("t", 0): 40, ("t", 1): 9}, {("t", 0): 100, ("u", 0): 7}),
    GroupStats("billing", 1, {}, {}),
    GroupStats("secret", 5, {("t", 0): 1}, {("t", 0): 2}),
]


def series(*patterns: str) -> set[str]:
    metrics = Metrics(
        stats=lambda: (),
        loop_lag_s=lambda: 0.0,
        calls=dict,
        groups=patterns,
        group_stats=lambda is_wanted: [g for g in GROUPS if is_wanted(g.group_id)],
    )
    lines = generate_latest(metrics.registry).decode().splitlines()
    return {line for line in lines if line.startswith("coordinator_group_")}


def test_no_group_has_series_by_default():
    assert series() == set()


def test_listed_groups_have_members_offsets_and_lag():
    assert series("orders-*", "billing") == {
        'coordinator_group_members{group="orders-1"} 2.0',
        'coordinator_group_members{group="billing"} 1.0',
        'coordinator_group_committed_offset{group="orders-1",partition="0",topic="t"} 40.0',
        'coordinator_group_committed_offset{group="orders-1",partition="1",topic="t"} 9.0',
        'coordinator_group_log_end_offset{group="orders-1",partition="0",topic="t"} 100.0',
        'coordinator_group_log_end_offset{group="orders-1",partition="0",topic="u"} 7.0',
        'coordinator_group_lag{group="orders-1",partition="0",topic="t"} 60.0',
        'coordinator_group_lag{group="orders-1",partition="0",topic="u"} 7.0',
    }


def test_a_pattern_is_for_the_whole_id():
    assert series("order", "bill", "*ing") == {'coordinator_group_members{group="billing"} 1.0'}
