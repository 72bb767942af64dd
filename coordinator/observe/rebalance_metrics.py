"""Metrics of rebalances, from the records of the journal."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Histogram

from coordinator.core.values.rebalance_journal import RebalanceRecord

WAITS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
OUTCOMES = ("completed", "interrupted", "failed")


class RebalanceMetrics:
    """Counters and histograms of rebalances that have ended, of all groups together."""

    def __init__(self, registry: CollectorRegistry) -> None:
        histogram = partial(Histogram, buckets=WAITS_S, registry=registry)
        self._phases = histogram(
            "coordinator_rebalance_phase_seconds",
            "Length of the phases of completed rebalances.",
            ["phase"],
        )
        self._durations = histogram(
            "coordinator_rebalance_seconds", "Length of rebalances, by how they ended.", ["outcome"]
        )
        self._blocked = histogram(
            "coordinator_member_blocked_seconds",
            "Time that members of completed rebalances waited for others, by phase.",
            ["phase"],
        )
        self._moved = Counter(
            "coordinator_partitions_moved",
            "Partitions that changed owners, of groups whose assignments can be decoded.",
            registry=registry,
        )
        self._unowned = Counter(
            "coordinator_partitions_unowned_seconds",
            "Time in which nobody worked on partitions, summed over partitions: from when their "
            "owners are last known to have worked until their new assignments were durable.",
            registry=registry,
        )
        for outcome in OUTCOMES:
            self._durations.labels(outcome)
        for phase in ("join", "sync", "durable"):
            self._phases.labels(phase)
        for phase in ("join", "sync"):
            self._blocked.labels(phase)

    def observe(self, record: RebalanceRecord) -> None:
        """Count a rebalance that has ended; of a return, the time in which nobody worked."""
        if record.is_return:
            self._unowned.inc(record.unowned_ms_total / 1_000)
            return
        outcome = record.outcome.split(":")[0]  # The reason of a failure is no label: unbounded.
        self._durations.labels(outcome).observe(
            seconds_between(record.started_at_ms, record.ended_at_ms)
        )
        if outcome != OUTCOMES[0]:
            return
        times = (
            ("join", record.started_at_ms, record.joined_at_ms),
            ("sync", record.joined_at_ms, record.synced_at_ms),
            ("durable", record.synced_at_ms, record.ended_at_ms),
        )
        for phase, begin_ms, end_ms in times:
            if begin_ms >= 0 and end_ms >= 0:
                self._phases.labels(phase).observe(seconds_between(begin_ms, end_ms))
        for member in record.members:
            blocked = self._blocked
            blocked.labels("join").observe(
                seconds_between(member.joined_at_ms, record.joined_at_ms)
            )
            if member.synced_at_ms >= 0:
                blocked.labels("sync").observe(
                    seconds_between(member.synced_at_ms, record.ended_at_ms)
                )
        self._moved.inc(max(0, record.partitions_moved))
        self._unowned.inc(record.unowned_ms_total / 1_000)


def seconds_between(begin_ms: int, end_ms: int) -> float:
    """Seconds between two times of one clock; 0 if the clock was set back between them."""
    return max(0, end_ms - begin_ms) / 1_000
