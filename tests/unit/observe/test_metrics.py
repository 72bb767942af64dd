"""Series of single groups: those on the list, and no others."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_page

from coordinator.core.group import GroupState
from coordinator.core.values.events import (
    RETURNS,
    EvictionCause,
    RebalanceCause,
    RebalanceJournaled,
)
from coordinator.core.values.rebalance_journal import RETURNED, RebalanceMember, RebalanceRecord
from coordinator.core.values.replies import LogEnd
from coordinator.observe.labels import snake_case
from coordinator.observe.listed_groups import PRUNE_AT, GroupFilter, ListedGroups
from coordinator.observe.metrics import Metrics
from coordinator.service.latency import Latency
from coordinator.shard.stats import GroupStats, ShardStats, WaitStats


def ends(offsets: dict[tuple[str, int], int]) -> dict[tuple[str, int], LogEnd]:
    return {key: LogEnd(*key, offset, 0) for key, offset in offsets.items()}


GROUPS = [
    GroupStats("orders-1", 2, {("t", 0): 40, ("t", 1): 9}, ends({("t", 0): 100, ("u", 0): 7})),
    GroupStats("billing", 1, {}, {}),
    GroupStats("secret", 5, {("t", 0): 1}, ends({("t", 0): 2})),
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


MEMBER = RebalanceMember("m", "c", "h", False, 9_000, joined_at_ms=1_400, synced_at_ms=3_100)
RECORD = RebalanceRecord(
    "g", "member joined", "completed", "m", "c", "h", "", 1, 2, "range", False,
    started_at_ms=1_000, joined_at_ms=3_000, synced_at_ms=3_200, ended_at_ms=3_300,
    leader="m", member_count=1, members=(MEMBER,), partitions_moved=3, unowned_ms_total=4_500,
)  # fmt: skip


def lines_of(metrics: Metrics) -> set[str]:
    return set(generate_latest(metrics.registry).decode().splitlines())


def test_a_rebalance_is_measured_phase_by_phase():
    metrics = Metrics(stats=lambda: (), loop_lag_s=lambda: 0.0, calls=dict)
    metrics([RebalanceJournaled(RECORD)], 3_300)
    metrics([RebalanceJournaled(replace(RECORD, outcome="failed: DISK"))], 3_300)
    metrics.log.appended(0.002, 7)
    assert lines_of(metrics) >= {
        'coordinator_rebalance_seconds_sum{outcome="completed"} 2.3',
        'coordinator_rebalance_seconds_count{outcome="failed"} 1.0',
        'coordinator_rebalance_phase_seconds_sum{phase="join"} 2.0',
        'coordinator_rebalance_phase_seconds_sum{phase="sync"} 0.2',
        'coordinator_rebalance_phase_seconds_sum{phase="durable"} 0.1',
        'coordinator_member_blocked_seconds_sum{phase="join"} 1.6',
        'coordinator_member_blocked_seconds_sum{phase="sync"} 0.2',
        "coordinator_partitions_moved_total 3.0",
        "coordinator_partitions_unowned_seconds_total 4.5",
        "coordinator_append_seconds_sum 0.002",
        "coordinator_append_records_sum 7.0",
    }


def test_waits_of_all_shards_are_one_histogram():
    one = WaitStats(counts=(1, 0, 2) + (0,) * 14, total_ms=9, expired=0)
    two = WaitStats(counts=(0,) * 16 + (1,), total_ms=400_000, expired=1)
    shards = [ShardStats(waits={"join": one}, timer_lag_ms=4), ShardStats(waits={"join": two})]
    lines = lines_of(Metrics(stats=lambda: shards, loop_lag_s=lambda: 0.0, calls=dict))
    assert lines >= {
        'coordinator_purgatory_wait_seconds_bucket{le="0.001",purgatory="join"} 1.0',
        'coordinator_purgatory_wait_seconds_bucket{le="0.005",purgatory="join"} 3.0',
        'coordinator_purgatory_wait_seconds_bucket{le="300.0",purgatory="join"} 3.0',
        'coordinator_purgatory_wait_seconds_bucket{le="+Inf",purgatory="join"} 4.0',
        'coordinator_purgatory_wait_seconds_count{purgatory="join"} 4.0',
        'coordinator_purgatory_wait_seconds_sum{purgatory="join"} 400.009',
        'coordinator_purgatory_expired_total{purgatory="join"} 1.0',
        "coordinator_timer_lag_seconds 0.004",
    }


def test_heartbeats_and_flushes_are_measured():
    metrics = Metrics(stats=lambda: (), loop_lag_s=lambda: 0.0, calls=dict, heartbeats=lambda: 70)
    metrics.heartbeat(0.000_03)
    metrics.log.flushed(0.002, 5)
    assert lines_of(metrics) >= {
        "coordinator_heartbeats_total 70.0",
        'coordinator_heartbeat_seconds_bucket{le="2e-05"} 0.0',
        'coordinator_heartbeat_seconds_bucket{le="5e-05"} 1.0',
        'coordinator_flush_seconds_bucket{le="0.0025"} 1.0',
        "coordinator_flush_appends_sum 5.0",
    }


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


def of_groups(groups: list[GroupStats]) -> Metrics:
    return Metrics(
        stats=lambda: (),
        loop_lag_s=lambda: 0.0,
        calls=dict,
        groups=["orders-*"],
        group_stats=lambda is_wanted: [g for g in groups if is_wanted(g.group_id)],
    )


def test_rebalances_are_counted_for_listed_groups_only():
    metrics = of_groups(GROUPS)
    for group in ("orders-1", "secret"):
        metrics([RebalanceJournaled(replace(RECORD, group_id=group))], 3_300)
    assert {line for line in lines_of(metrics) if line.startswith("coordinator_group_reb")} == {
        'coordinator_group_rebalances_total{cause="member_joined",group="orders-1"} 1.0',
        'coordinator_group_rebalance_seconds_total{group="orders-1"} 2.3',
    }


def test_a_group_that_is_gone_has_no_series_left():
    groups = [*GROUPS]
    metrics = of_groups(groups)
    metrics([RebalanceJournaled(replace(RECORD, group_id="orders-1"))], 3_300)
    assert any('group="orders-1"' in line for line in lines_of(metrics))
    groups.clear()
    assert not any('group="orders-1"' in line for line in lines_of(metrics))
    groups += GROUPS
    assert not any("group_rebalances" in line for line in lines_of(metrics) if line[0] != "#")


def test_groups_that_are_gone_are_dropped_though_nobody_scrapes():
    listed = ListedGroups(GroupFilter(["*"]), lambda is_wanted: GROUPS)
    for number in range(3 * PRUNE_AT):
        listed.observe(replace(RECORD, group_id=f"g{number}"))
    listed.observe(replace(RECORD, group_id="billing"))
    assert listed.counted <= PRUNE_AT


def test_a_pattern_is_for_the_whole_id():
    assert series("order", "bill", "*ing") == {'coordinator_group_members{group="billing"} 1.0'}


def test_calls_are_measured_by_method():
    latency = Latency()
    for seconds in (0.000_4, 0.04, 400.0):
        latency.observe(seconds)
    metrics = Metrics(
        stats=lambda: (), loop_lag_s=lambda: 0.0, calls=dict, latencies=lambda: {"J": latency}
    )
    assert lines_of(metrics) >= {
        'coordinator_grpc_call_seconds_bucket{le="0.0005",method="J"} 1.0',
        'coordinator_grpc_call_seconds_bucket{le="0.05",method="J"} 2.0',
        'coordinator_grpc_call_seconds_bucket{le="300.0",method="J"} 2.0',
        'coordinator_grpc_call_seconds_bucket{le="+Inf",method="J"} 3.0',
        'coordinator_grpc_call_seconds_count{method="J"} 3.0',
        'coordinator_grpc_call_seconds_sum{method="J"} 400.0404',
    }


def test_a_page_has_the_process_and_no_series_of_creation():
    metrics = Metrics(stats=lambda: (), loop_lag_s=lambda: 0.0, calls=dict)
    metrics([RebalanceJournaled(RECORD)], 3_300)
    names = {line.split("{")[0].split(" ")[0] for line in lines_of(metrics) if line[0] != "#"}
    assert names >= {"python_info", "python_gc_collections_total"}
    if sys.platform == "linux":
        assert names >= {"process_cpu_seconds_total", "process_resident_memory_bytes"}
    assert not [name for name in names if name.endswith("_created")]
    openmetrics = openmetrics_page(metrics.registry).decode()
    assert "_created" not in openmetrics


def test_a_static_member_that_returned_counts_as_time_without_work_and_as_no_rebalance():
    metrics = of_groups(GROUPS)
    record = replace(
        RECORD, group_id="orders-1", cause=RETURNED, unowned_partitions=2, unowned_ms_total=3_500
    )
    metrics([RebalanceJournaled(record)], 3_300)
    lines = lines_of(metrics)
    assert "coordinator_partitions_unowned_seconds_total 3.5" in lines
    assert 'coordinator_rebalance_seconds_count{outcome="completed"} 0.0' in lines
    assert not [line for line in lines if "static_member_returned" in line]


def test_label_values_that_are_ours_are_in_snake_case():
    ours = [*RebalanceCause, *EvictionCause, *GroupState]
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", snake_case(state.value)) for state in ours)
    assert snake_case("leader re-joined") == "leader_rejoined"
    assert snake_case("PreparingRebalance") == "preparing_rebalance"
    metrics = Metrics(
        stats=lambda: [ShardStats(groups={state.value: 2 for state in GroupState})],
        loop_lag_s=lambda: 0.0,
        calls=dict,
    )
    assert lines_of(metrics) >= {
        *(f'coordinator_groups{{state="{snake_case(state.value)}"}} 2.0' for state in GroupState),
        *(
            f'coordinator_rebalances_total{{cause="{snake_case(cause.value)}"}} 0.0'
            for cause in RebalanceCause
            if cause not in RETURNS
        ),
    }
