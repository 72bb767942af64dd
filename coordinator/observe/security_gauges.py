"""What Prometheus is told of certificates, refusals and files that could not be read again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

REASONS = ("denied", "unauthenticated")


class Secured(Protocol):
    """The numbers of what secures a node. `not_after_s` since the epoch; infinite without TLS."""

    @property
    def not_after_s(self) -> float: ...
    @property
    def refusals(self) -> Mapping[str, int]: ...
    @property
    def reload_failures(self) -> int: ...


class SecurityGauges(Collector):
    """The series of a node's security."""

    def __init__(self, secured: Secured) -> None:
        self._secured = secured

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(
            "coordinator_certificate_expiry_timestamp_seconds",
            "When the node's certificate expires, since the epoch; +Inf without TLS.",
            value=self._secured.not_after_s,
        )
        refusals = CounterMetricFamily(
            "coordinator_security_refusals",
            "Calls and pages that were refused, by reason.",
            labels=["reason"],
        )
        for reason in REASONS:
            refusals.add_metric([reason], self._secured.refusals.get(reason, 0))
        yield refusals
        yield CounterMetricFamily(
            "coordinator_security_reload_failures",
            "Changed certificates, tokens, keys or rules that were not usable.",
            value=self._secured.reload_failures,
        )
