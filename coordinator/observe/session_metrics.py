"""Metrics of session groups: counters and histograms, from their events."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from coordinator.core.values.events import (
    Event,
    HandoffJournaled,
    PlanFailed,
    PlanJournaled,
    SessionCommitFenced,
    SessionMemberRemoved,
)
from coordinator.core.values.ids import NO_TIME
from coordinator.core.values.plan_journal import RETURNED, HandoffLine, HandoffOutcome, PlanRecord
from coordinator.core.values.plans import MoveReason
from coordinator.core.values.policy import Mode
from coordinator.core.values.records import EndCause
from coordinator.observe.gauges import OnScrape, buckets
from coordinator.observe.rebalance_metrics import WAITS_S, seconds_between

ENDED = tuple(
    an_outcome.value for an_outcome in HandoffOutcome if an_outcome is not HandoffOutcome.OPEN
)
PHASES = ("prepare", "drain", "forced", "copy")
FREE = "free"
"""Reason of a move of a partition that nobody held."""


class SessionMetrics:
    """Counters and histograms of session groups, of all groups together."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self._handoffs = counter(
            "coordinator_session_handoffs",
            "Hand-offs that have ended, by mode and by how they ended.",
            ["mode", "outcome"],
        )
        self._phases = Histogram(
            "coordinator_session_handoff_phase_seconds",
            "Length of the phases of hand-offs that have ended.",
            ["phase"],
            buckets=WAITS_S,
            registry=registry,
        )
        self._plans = Histogram(
            "coordinator_session_plan_seconds",
            "Time from the first event that called for a plan until the plan was made.",
            buckets=WAITS_S,
            registry=registry,
        )
        self._moves = counter(
            "coordinator_session_moves",
            "Partitions that plans gave to another member, by reason; `free`: nobody held them.",
            ["reason"],
        )
        self._expirations = counter(
            "coordinator_session_lease_expirations",
            "Sessions that ended because their lease ran out.",
        )
        self._fenced = counter(
            "coordinator_session_fenced_commits",
            "Partitions whose commit was refused because its member does not hold them.",
        )
        self._plan_failures = counter(
            "coordinator_session_plan_failures",
            "Plans of session groups that the planner has failed to make.",
        )
        self._unowned = UnownedPartitions()
        registry.register(OnScrape(self._unowned.collect))
        # A series that appears with its first event hides that event from rate().
        for mode in Mode:
            for outcome in ENDED:
                self._handoffs.labels(mode.value, outcome)
        for phase in PHASES:
            self._phases.labels(phase)
        for reason in (*(move_reason.value for move_reason in MoveReason), FREE):
            self._moves.labels(reason)

    def observe(self, event: Event) -> None:
        """Count an event of a session group; others are ignored."""
        match event:
            case HandoffJournaled():
                if event.record.line is not None:
                    self._handoff(event.record.line)
            case PlanJournaled():
                self._plan(event.record)
            case SessionMemberRemoved(cause=EndCause.LEASE_EXPIRED):
                self._expirations.inc()
            case PlanFailed():
                self._plan_failures.inc()
            case SessionCommitFenced():
                self._fenced.inc(event.partitions)
            case _:
                pass

    def _handoff(self, line: HandoffLine) -> None:
        self._handoffs.labels(line.mode, line.outcome.value).inc()
        for phase, begin_ms, end_ms in phases_of(line):
            self._phases.labels(phase).observe(seconds_between(begin_ms, end_ms))
        if line.stop is not None:
            shortest_ms, longest_ms = line.stop.idle_ms(line.ended_at_ms)
            self._unowned.add(max(shortest_ms, longest_ms) / 1_000)

    def _plan(self, record: PlanRecord) -> None:
        if record.called_at_ms != NO_TIME:
            self._plans.observe(seconds_between(record.called_at_ms, record.made_at_ms))
        for reason, partitions in record.counts:
            if reason != RETURNED:
                self._moves.labels(reason).inc(partitions)
        planned, listed_ms = 0, 0
        for move in record.moves:
            if move.stop is None:
                continue
            count = sum(last - first + 1 for first, last in move.partitions)
            idle_ms = max(move.stop.idle_ms(move.resumed_by(record.made_at_ms)))
            self._unowned.add(idle_ms / 1_000, count)
            planned, listed_ms = planned + count, listed_ms + idle_ms * count
        # The record names the first moves only: of the others it has the sum.
        left = record.unowned.partitions - planned
        if left > 0:
            idle_ms = max(0, record.unowned.ms_total - listed_ms) // left
            self._unowned.add(idle_ms / 1_000, left)


class UnownedPartitions:
    """Histogram of how long nobody worked on partitions; one value may count for many of them."""

    def __init__(self) -> None:
        self._counts = [0] * (len(WAITS_S) + 1)
        self._total_s = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        """Count a time for so many partitions."""
        self._counts[bisect_left(WAITS_S, seconds)] += times
        self._total_s += seconds * times

    def collect(self) -> Iterable[Metric]:
        yield HistogramMetricFamily(
            "coordinator_session_partition_unowned_seconds",
            "Time in which nobody worked on a partition that a hand-off, or a plan, gave to "
            "another member, or that its own got again: from when its holder is last known to have "
            "worked on it.",
            buckets=buckets(WAITS_S, self._counts),
            sum_value=self._total_s,
        )


def phases_of(line: HandoffLine) -> Iterable[tuple[str, int, int]]:
    """Phases of a hand-off that has ended, with their begin and end, epoch milliseconds."""
    ends = {
        "prepare": (line.opened_at_ms, _first(line.drain_at_ms, line.ended_at_ms)),
        "drain": (
            line.drain_at_ms,
            _first(line.forced_at_ms, line.released_at_ms, line.ended_at_ms),
        ),
        "forced": (line.forced_at_ms, line.ended_at_ms),
        "copy": (line.released_at_ms, line.ended_at_ms),
    }
    if line.mode != Mode.WARM.value:
        del ends["prepare"]
    if line.mode != Mode.COPY.value:
        del ends["copy"]
    for phase, (begin_ms, end_ms) in ends.items():
        if begin_ms != NO_TIME and end_ms != NO_TIME:
            yield phase, begin_ms, end_ms


def _first(*times: int) -> int:
    return next((at_ms for at_ms in times if at_ms != NO_TIME), NO_TIME)
