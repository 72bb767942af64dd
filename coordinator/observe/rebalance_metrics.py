"""What the journal's records say in numbers."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram

from coordinator.core.records import RebalanceRecord

WAITS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
OUTCOMES = ("completed", "interrupted", "failed")


class RebalanceMetrics:
    """Counters and histograms of rebalances that have ended.

    Args:
        listed: which groups have series of their own: their number has a bound.
    """

    def __init__(self, registry: CollectorRegistry, listed: Callable[[str], bool]) -> None:
        self._listed = listed
        self._phases = Histogram(
            "coordinator_rebalance_phase_seconds",
            "Length of the phases of completed rebalances.",
            ["phase"],
            buckets=WAITS_S,
            registry=registry,
        )
        self._durations = Histogram(
            "coordinator_rebalance_seconds",
            "Length of rebalances, by how they ended.",
            ["outcome"],
            buckets=WAITS_S,
            registry=registry,
        )
        self._blocked = Histogram(
            "coordinator_member_blocked_seconds",
            "How long members of completed rebalances waited for others, by what for.",
            ["phase"],
            buckets=WAITS_S,
            registry=registry,
        )
        self._moved = Counter(
            "coordinator_partitions_moved",
            "Partitions that changed owners, where assignments can be read.",
            registry=registry,
        )
        self._unowned = Counter(
            "coordinator_partitions_unowned_seconds",
            "For how long partitions had no owner during rebalances, summed over partitions.",
            registry=registry,
        )
        self._group_rebalances = Counter(
            "coordinator_group_rebalances",
            "Rebalances of a listed group that have ended, by cause.",
            ["group", "cause"],
            registry=registry,
        )
        self._group_seconds = Counter(
            "coordinator_group_rebalance_seconds",
            "Time that a listed group has spent in rebalances.",
            ["group"],
            registry=registry,
        )
        for outcome in OUTCOMES:
            self._durations.labels(outcome)
        for phase in ("join", "sync", "durable"):
            self._phases.labels(phase)
        for phase in ("join", "sync"):
            self._blocked.labels(phase)

    def observe(self, record: RebalanceRecord) -> None:
        """Take one in."""
        outcome = record.outcome.split(":")[0]  # What it failed of has no bound.
        lasted_s = _seconds(record.started_at_ms, record.ended_at_ms)
        self._durations.labels(outcome).observe(lasted_s)
        if self._listed(record.group_id):
            self._group_rebalances.labels(record.group_id, record.cause).inc()
            self._group_seconds.labels(record.group_id).inc(lasted_s)
        if outcome != OUTCOMES[0]:
            return
        times = (
            ("join", record.started_at_ms, record.joined_at_ms),
            ("sync", record.joined_at_ms, record.synced_at_ms),
            ("durable", record.synced_at_ms, record.ended_at_ms),
        )
        for phase, begin_ms, end_ms in times:
            if begin_ms >= 0 and end_ms >= 0:
                self._phases.labels(phase).observe(_seconds(begin_ms, end_ms))
        for member in record.members:
            blocked = self._blocked
            blocked.labels("join").observe(_seconds(member.joined_at_ms, record.joined_at_ms))
            if member.synced_at_ms >= 0:
                blocked.labels("sync").observe(_seconds(member.synced_at_ms, record.ended_at_ms))
        self._moved.inc(max(0, record.partitions_moved))
        self._unowned.inc(record.unowned_ms_total / 1_000)


def _seconds(begin_ms: int, end_ms: int) -> float:
    return max(0, end_ms - begin_ms) / 1_000
