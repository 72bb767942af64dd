"""Metrics of the log: the appends of shards, and the SQLite writes that carry them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram

APPENDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)


class LogMetrics:
    """Histograms of appends and writes; the shard runner and the SQLite writer report to them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._appends = Histogram(
            "coordinator_append_seconds",
            "Time from handing an entry to the log until it is durable.",
            buckets=APPENDS_S,
            registry=registry,
        )
        self._append_records = Histogram(
            "coordinator_append_records",
            "Records per log entry: those written while the entry before was under way.",
            buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000),
            registry=registry,
        )
        self._flushes = Histogram(
            "coordinator_flush_seconds",
            "Time of a SQLite write including the sync; it carries the appends of all shards.",
            buckets=APPENDS_S,
            registry=registry,
        )
        self._flushed_appends = Histogram(
            "coordinator_flush_appends",
            "Appends per SQLite write (group commit).",
            buckets=(1, 2, 5, 10, 20, 50, 100),
            registry=registry,
        )

    def appended(self, seconds: float, records: int) -> None:
        """Count an entry that is durable.

        Args:
            seconds: from handing it to the log.
        """
        self._appends.observe(seconds)
        self._append_records.observe(records)

    def flushed(self, seconds: float, appends: int) -> None:
        """Count a write that SQLite has synced. Called from the thread that writes."""
        self._flushes.observe(seconds)
        self._flushed_appends.observe(appends)
