"""Metrics of Kafka's clients: connections and requests by their library, refused connections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from coordinator.observe.gauges import gauge


@dataclass(frozen=True, slots=True)
class KafkaStats:
    """A snapshot of a listener.

    Args:
        connections: open ones by library.
        requests: by API and library.
        ended: connections that the node ended, by reason.
    """

    connections: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[tuple[str, str], int] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)


def kafka_metrics(stats: KafkaStats) -> Iterable[Metric]:
    """The series of a listener for Kafka's clients; without one they are empty."""
    yield gauge(
        "coordinator_kafka_connections",
        "Open connections of Kafka clients, by the client's library; further libraries than 20 "
        "are `other`, clients that name none `unnamed`.",
        "software",
        stats.connections,
    )
    requests = CounterMetricFamily(
        "coordinator_kafka_requests",
        "Requests of Kafka clients, by API and the client's library.",
        labels=["api", "software"],
    )
    for labels, count in stats.requests.items():
        requests.add_metric(list(labels), count)
    yield requests
    ended = CounterMetricFamily(
        "coordinator_kafka_connections_ended",
        "Connections of Kafka clients that the node refused or closed, by reason.",
        labels=["reason"],
    )
    for reason, count in stats.ended.items():
        ended.add_metric([reason], count)
    yield ended
