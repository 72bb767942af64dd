"""Metrics of workers, if prometheus-client is installed; imported when a worker starts.

`deploy/metrics.md` lists them, and the values of their labels.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any

from coordinator.client.worker.core import WorkerCore
from coordinator.client.worker.scope import Stage


class WorkerMetrics:
    """Metrics of one group's worker in this process, in the default registry."""

    def __init__(self, group_id: str, metrics: tuple[Any, Any, Any]) -> None:
        self._group_id = group_id
        self._events, partitions, left_over = metrics
        self._seen: Counter[str] = Counter()
        self._gauges = {
            stage: partitions.labels(group_id, stage.name.lower())
            for stage in Stage
            if stage is not Stage.ENDED
        }
        self._left_over = left_over.labels(group_id)

    @classmethod
    def of(cls, group_id: str) -> WorkerMetrics | None:
        """Metrics of a group; None without prometheus-client."""
        metrics = _registered()
        return None if metrics is None else cls(group_id, metrics)

    def update(self, core: WorkerCore) -> None:
        """Take in what has changed since the last call."""
        for event, count in core.counts.items():
            if count > self._seen[event]:
                name = event.replace(" ", "_")
                self._events.labels(self._group_id, name).inc(count - self._seen[event])
                self._seen[event] = count
        stages = Counter(scope.stage for scope in (*core.warming.values(), *core.scopes.values()))
        for stage, gauge in self._gauges.items():
            gauge.set(stages[stage])
        self._left_over.set(len(core.left_over))


@lru_cache(maxsize=1)
def _registered() -> tuple[Any, Any, Any] | None:  # Any: prometheus-client may not be installed.
    try:
        from prometheus_client import Counter as Total
        from prometheus_client import Gauge
    except ImportError:
        return None
    return (
        Total("coordinator_worker_events", "Events of handlers, by kind.", ["group", "event"]),
        Gauge(
            "coordinator_worker_partitions",
            "Partitions that the worker holds, by what their handlers do or wait for.",
            ["group", "stage"],
        ),
        Gauge(
            "coordinator_worker_left_over",
            "Calls of handlers and hooks that have outlived their holding of the partition.",
            ["group"],
        ),
    )
