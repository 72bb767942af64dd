"""Metrics and log lines of session groups."""

from __future__ import annotations

import logging

from coordinator.core.values.events import (
    HandoffJournaled,
    PlanJournaled,
    SessionCommitFenced,
    SessionMemberRemoved,
)
from coordinator.core.values.plan_journal import (
    HandoffLine,
    HandoffOutcome,
    PlannedMove,
    PlanRecord,
    PlanTrigger,
    StoppedBy,
    TriggerCause,
    Unowned,
    WorkStop,
)
from coordinator.core.values.records import EndCause, PartitionSwitched, Phase, PhaseEntered
from coordinator.observe.logs import EventLog
from coordinator.observe.metrics import Metrics
from coordinator.shard.stats import ShardStats, session_stats
from tests.kit.session_scenario import GROUP, SessionScenario, g2, handing_over
from tests.unit.observe.test_metrics import lines_of

STOP = WorkStop(StoppedBy.RELEASED, earliest_ms=1_400, latest_ms=1_500)
LINE = HandoffLine(
    7, "m-a", "copy", "balance",
    opened_at_ms=1_000, drain_at_ms=1_000, released_at_ms=1_500, ended_at_ms=1_700,
    outcome=HandoffOutcome.RELEASED, stop=STOP,
)  # fmt: skip
SWITCH = PartitionSwitched("g", "t", 3, "m-b", 9, LINE)
PLAN = PlanRecord(
    "g", (PlanTrigger(TriggerCause.MEMBER_DIED, "m-a"),), 1,
    called_at_ms=1_000, made_at_ms=1_100, member_count=2, partition_count=300,
    counts=(("free", 200), ("balance", 2)),
    moves=(PlannedMove("t", ((0, 99),), "m-a", "m-b", "free", STOP),),
    left_out=102, unowned=Unowned(200, 400, 40_000),
)  # fmt: skip


def metrics(stats: ShardStats | None = None, lag_p99_s: float = 0.0) -> Metrics:
    shards = () if stats is None else (stats, ShardStats())
    return Metrics(
        stats=lambda: shards,
        loop_lag_s=lambda: 0.0,
        loop_lag_p99_s=lambda: lag_p99_s,
        calls=dict,
    )


def test_a_handoff_is_measured_phase_by_phase_with_the_time_nobody_worked():
    counted = metrics()
    counted([HandoffJournaled("g", SWITCH)], 1_700)
    assert lines_of(counted) >= {
        'coordinator_session_handoffs_total{mode="copy",outcome="released"} 1.0',
        'coordinator_session_handoffs_total{mode="warm",outcome="forced"} 0.0',
        'coordinator_session_handoff_phase_seconds_sum{phase="drain"} 0.5',
        'coordinator_session_handoff_phase_seconds_sum{phase="copy"} 0.2',
        'coordinator_session_handoff_phase_seconds_count{phase="forced"} 0.0',
        "coordinator_session_partition_unowned_seconds_sum 0.3",
        "coordinator_session_partition_unowned_seconds_count 1.0",
    }


def test_a_plan_counts_its_moves_and_the_rests_of_all_its_partitions():
    counted = metrics()
    counted([PlanJournaled(PLAN)], 1_100)
    assert lines_of(counted) >= {
        "coordinator_session_plan_seconds_sum 0.1",
        'coordinator_session_moves_total{reason="free"} 200.0',
        'coordinator_session_moves_total{reason="balance"} 2.0',
        'coordinator_session_moves_total{reason="pinned"} 0.0',
        "coordinator_session_partition_unowned_seconds_count 200.0",
        "coordinator_session_partition_unowned_seconds_sum 40.0",
    }


def test_ends_of_leases_and_fenced_commits_are_counted():
    counted = metrics()
    ended = [
        SessionMemberRemoved("g", "m", "w", "c", "h", cause, 2, 5)
        for cause in (EndCause.LEASE_EXPIRED, EndCause.LEFT)
    ]
    counted([*ended, SessionCommitFenced("g", "m", 3)], 9)
    assert lines_of(counted) >= {
        "coordinator_session_lease_expirations_total 1.0",
        "coordinator_session_fenced_commits_total 3.0",
    }


def test_the_lag_of_the_loop_is_compared_with_the_shortest_lease():
    scenario, a, _ = g2()
    scenario.group.members[a.member_id].notified_lease_ms = 4_000
    assert "coordinator_session_lag_ratio 0.25" in lines_of(metrics(scenario.shard.stats(), 1.0))
    assert "coordinator_session_lag_ratio 0.0" in lines_of(metrics(ShardStats(), 1.0))


def test_partitions_are_counted_by_state():
    scenario, a, _, _ = handing_over()
    scenario.to(6_000)
    a.cut()
    stats = session_stats([scenario.group])
    assert (stats.members, stats.suspects, stats.waiting) == (2, 1, 0)
    assert {k: v for k, v in stats.partitions.items() if v} == {"held": 2, "drain": 1}
    lines = lines_of(metrics(scenario.shard.stats()))
    assert lines >= {
        "coordinator_session_members 2.0",
        "coordinator_session_suspects 1.0",
        'coordinator_session_partitions{state="drain"} 1.0',
        'coordinator_session_partitions{state="free"} 0.0',
    }


def test_free_and_kept_partitions_are_counted():
    scenario = SessionScenario()
    a = scenario.member("w-a", {"t": 4}).attach()
    assert session_stats([scenario.group]).partitions["free"] == 4
    scenario.to(100)
    a.leave("return", 60_000)
    partitions = session_stats([scenario.group]).partitions
    assert (partitions["reserved"], partitions["held"], partitions["free"]) == (4, 0, 0)


def test_what_becomes_durable_is_told_once_and_not_again_after_a_restart():
    scenario, a, b = g2()
    kinds = [type(event).__name__ for event in scenario.events]
    assert kinds.count("SessionMemberJoined") == 2
    assert kinds.count("SessionPolicyChanged") == 1
    assert kinds.count("GroupCreated") == 1
    scenario.to(5_000)
    a.beats = False
    scenario.to(15_200)
    [ended] = [event for event in scenario.events if isinstance(event, SessionMemberRemoved)]
    assert (ended.cause, ended.partitions, ended.name) == (EndCause.LEASE_EXPIRED, 2, a.name)
    assert ended.last_seen_ms == 5_000
    count = len(scenario.events)
    scenario.restart()
    assert len(scenario.events) == count
    scenario.hold()
    scenario.member("w-c", {"t": 3}).attach()
    assert len(scenario.events) == count  # Not durable yet.
    scenario.release()
    assert [type(e).__name__ for e in scenario.events[count:]] == ["SessionMemberJoined"]
    assert b.reply is not None


def test_a_fenced_commit_and_a_lost_stream_are_events():
    scenario, a, b = g2()
    b.commit(7, a.active[0], token=99)
    a.cut()
    told = [(type(e).__name__, e.partitions) for e in scenario.events[-2:]]
    assert told == [("SessionCommitFenced", 1), ("SessionMemberSuspect", 2)]


class Logger:
    def __init__(self) -> None:
        self.lines = []

    def log(self, level, event, **values) -> None:
        self.lines.append((level, event, values))


def test_plans_are_info_forced_handoffs_and_lost_members_warnings():
    logger = Logger()
    forced = PartitionSwitched(
        "g", "t", 3, "m-b", 9,
        HandoffLine(7, "m-a", "simple", opened_at_ms=1, forced_at_ms=2, ended_at_ms=5),
    )  # fmt: skip
    abandoned = PhaseEntered("g", "t", 4, Phase.HELD, line=LINE)
    events = [
        PlanJournaled(PLAN),
        HandoffJournaled("g", SWITCH),
        HandoffJournaled("g", forced),
        HandoffJournaled("g", abandoned),
        SessionMemberRemoved(GROUP, "m", "w", "c", "h", EndCause.LEASE_EXPIRED, 2, 5),
        SessionMemberRemoved(GROUP, "m", "w", "c", "h", EndCause.LEFT, 0, 5),
    ]
    EventLog(logger)(events, 1_700)
    assert [level for level, _, _ in logger.lines] == [
        logging.INFO,
        logging.DEBUG,
        logging.WARNING,
        logging.DEBUG,
        logging.WARNING,
        logging.INFO,
    ]
    (_, name, plan), (_, _, handoff), *_ = logger.lines
    assert name == "plan_journaled"
    assert plan["triggers"] == ["member_died m-a"]
    assert plan["moves"] == {"free": 200, "balance": 2}
    assert handoff["unowned_ms"] == 300
    assert handoff["successor"] == "m-b"
