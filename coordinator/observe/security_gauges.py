"""Metrics of security: certificate expiry, refusals, and failed reloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

REASONS = ("denied", "unauthenticated")


class Secured(Protocol):
    """Numbers of a node's security. `not_after_s`: Unix time; infinite without TLS."""

    @property
    def not_after_s(self) -> float: ...
    @property
    def refusals(self) -> Mapping[str, int]: ...
    @property
    def reload_failures(self) -> int: ...


def security_metrics(secured: Secured) -> Iterable[Metric]:
    """The series of a node's security."""
    yield GaugeMetricFamily(
        "coordinator_certificate_expiry_timestamp_seconds",
        "Expiry of the node's certificate as Unix time; +Inf without TLS.",
        value=secured.not_after_s,
    )
    refusals = CounterMetricFamily(
        "coordinator_security_refusals",
        "Refused calls and page requests, by reason.",
        labels=["reason"],
    )
    for reason in REASONS:
        refusals.add_metric([reason], secured.refusals.get(reason, 0))
    yield refusals
    yield CounterMetricFamily(
        "coordinator_security_reload_failures",
        "Failed reloads of changed certificates, tokens, keys or rules.",
        value=secured.reload_failures,
    )
