"""Metrics of calls: how many were answered with which status, and how long they took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from coordinator.observe.gauges import buckets


class Latency(Protocol):
    """Histogram of calls: one count per bound, and one above all."""

    @property
    def bounds_s(self) -> Sequence[float]: ...
    @property
    def counts(self) -> Sequence[int]: ...
    @property
    def total_s(self) -> float: ...


def call_metrics(
    answered: Mapping[tuple[str, str], int], heartbeats: int, latencies: Mapping[str, Latency]
) -> Iterable[Metric]:
    """Metrics of calls of all transports. The event loop writes them while a scrape reads them."""
    calls = CounterMetricFamily(
        "coordinator_grpc_calls",
        "Answered calls, by method and status; those of Kafka clients too.",
        labels=["method", "code"],
    )
    for labels, count in dict(answered).items():
        calls.add_metric(list(labels), count)
    yield calls
    yield CounterMetricFamily(
        "coordinator_heartbeats",
        "Answered heartbeats, alone or in batches.",
        value=heartbeats,
    )
    seconds = HistogramMetricFamily(
        "coordinator_grpc_call_seconds",
        "Time from taking up a call until it is answered or refused, or its client gives up, by "
        "method. JoinGroup and SyncGroup wait for the other members of their group, Fetch for the "
        "next record. Of heartbeats and batches of them, one in 64 is measured, also on a stream; "
        "of other streams none.",
        labels=["method"],
    )
    for method, latency in dict(latencies).items():
        counted = buckets(latency.bounds_s, tuple(latency.counts))
        seconds.add_metric([method], counted, latency.total_s)
    yield seconds
