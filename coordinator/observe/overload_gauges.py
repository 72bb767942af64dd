"""Whether a node keeps up with its calls: what waits, for how long, and what was dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from coordinator.observe.gauges import gauge


@dataclass(frozen=True, slots=True)
class OverloadStats:
    """Numbers of one moment. `waiting` by kind, `dropped` by reason, `lag_counts` by `lags_s`."""

    queue_age_s: float
    waiting: Mapping[str, int]
    dropped: Mapping[str, int]
    lags_s: Sequence[float]
    lag_counts: Sequence[int]
    lag_total_s: float
    paused_s: float


class OverloadGauges(Collector):
    """The numbers of a node."""

    def __init__(self, stats: Callable[[], OverloadStats]) -> None:
        self._stats = stats

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        stats = self._stats()
        yield GaugeMetricFamily(
            "coordinator_queue_age_seconds",
            "For how long the oldest call has waited to be served, when last measured.",
            value=stats.queue_age_s,
        )
        yield gauge(
            "coordinator_queued_calls",
            "Calls that wait to be served, by kind; 'not taken up' is an estimate.",
            "kind",
            stats.waiting,
        )
        dropped = CounterMetricFamily(
            "coordinator_dropped_calls",
            "Calls that were not served, by reason; of those 'not taken up' so many at least.",
            labels=["reason"],
        )
        for reason, count in stats.dropped.items():
            dropped.add_metric([reason], count)
        yield dropped
        delays = HistogramMetricFamily(
            "coordinator_event_loop_delay_seconds",
            "How late the event loop was, four times a second, whether timers are due or not.",
        )
        bounds = [*map(str, stats.lags_s), "+Inf"]
        delays.add_metric(
            [], list(zip(bounds, accumulate(stats.lag_counts), strict=True)), stats.lag_total_s
        )
        yield delays
        yield CounterMetricFamily(
            "coordinator_paused_seconds",
            "Time in which members were not heard, and which does not count as their silence.",
            value=stats.paused_s,
        )
