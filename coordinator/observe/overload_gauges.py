"""Metrics of overload: queued and dropped calls, event loop delay, and pauses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from coordinator.observe.gauges import buckets, gauge


@dataclass(frozen=True, slots=True)
class OverloadStats:
    """A snapshot. `waiting` by kind, `dropped` by reason, `lag_counts` by bounds `lags_s`."""

    queue_age_s: float
    waiting: Mapping[str, int]
    dropped: Mapping[str, int]
    lags_s: Sequence[float]
    lag_counts: Sequence[int]
    lag_total_s: float
    paused_s: float


def overload_metrics(stats: OverloadStats) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        "coordinator_queue_age_seconds",
        "Age of the oldest queued call, when last measured.",
        value=stats.queue_age_s,
    )
    yield gauge(
        "coordinator_queued_calls",
        "Queued calls, by kind; not_taken_up (queued in gRPC) is an estimate.",
        "kind",
        stats.waiting,
    )
    dropped = CounterMetricFamily(
        "coordinator_dropped_calls",
        "Dropped calls, by reason; not_taken_up (dropped by gRPC) is a lower bound.",
        labels=["reason"],
    )
    for reason, count in stats.dropped.items():
        dropped.add_metric([reason], count)
    yield dropped
    delays = HistogramMetricFamily(
        "coordinator_event_loop_delay_seconds",
        "Delay of the event loop, measured four times a second.",
    )
    delays.add_metric([], buckets(stats.lags_s, stats.lag_counts), stats.lag_total_s)
    yield delays
    yield CounterMetricFamily(
        "coordinator_paused_seconds",
        "Time in which the node could not read calls; sessions are extended by it.",
        value=stats.paused_s,
    )
