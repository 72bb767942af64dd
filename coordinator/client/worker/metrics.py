"""Metrics of workers, if prometheus-client is installed; imported when a worker starts.

They never stop a worker: what the library or the disk refuses is a warning, and the worker goes on
without them. Workers of other threads, and this module when it is imported anew, use the metrics
that are registered already.

`deploy/metrics.md` lists them, and the values of their labels.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import Any

from coordinator.client.worker.core import WorkerCore
from coordinator.client.worker.scope import Stage

LOGGER = logging.getLogger("coordinator.client")
_REGISTERING = threading.Lock()


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
        """Metrics of a group; None without prometheus-client, or if it refuses them."""
        try:
            with _REGISTERING:
                metrics = _registered()
            return None if metrics is None else cls(group_id, metrics)
        except Exception as error:  # noqa: BLE001  # Its own, or of the disk: multi-process mode.
            LOGGER.warning("group %s: its worker has no metrics: %r", group_id, error)
            return None

    def update(self, core: WorkerCore) -> bool:
        """Take in what has changed since the last call; False: there are no metrics any more."""
        try:
            self._take_in(core)
        except Exception as error:  # noqa: BLE001  # As above.
            LOGGER.warning("group %s: its worker's metrics have ended: %r", self._group_id, error)
            return False
        return True

    def _take_in(self, core: WorkerCore) -> None:
        for event, count in core.counts.items():
            if count > self._seen[event]:
                name = event.replace(" ", "_")
                self._events.labels(self._group_id, name).inc(count - self._seen[event])
                self._seen[event] = count
        stages = Counter(scope.stage for scope in (*core.warming.values(), *core.scopes.values()))
        for stage, gauge in self._gauges.items():
            gauge.set(stages[stage])
        self._left_over.set(len(core.left_over))


def _registered() -> tuple[Any, Any, Any] | None:  # Any: prometheus-client may not be installed.
    try:
        from prometheus_client import REGISTRY, Gauge
        from prometheus_client import Counter as Total
    except ImportError:
        return None
    # The registry has no public way to find a metric.
    known = getattr(REGISTRY, "_names_to_collectors", {})

    def metric(kind: type[Any], name: str, text: str, labels: list[str]) -> Any:
        registered = known.get(name)
        if isinstance(registered, kind) and getattr(registered, "_labelnames", ()) == tuple(labels):
            return registered
        return kind(name, text, labels)  # ValueError: a metric of the program's own has the name.

    return (
        metric(
            Total, "coordinator_worker_events", "Events of handlers, by kind.", ["group", "event"]
        ),
        metric(
            Gauge,
            "coordinator_worker_partitions",
            "Partitions that the worker holds, by what their handlers do or wait for.",
            ["group", "stage"],
        ),
        metric(
            Gauge,
            "coordinator_worker_left_over",
            "Calls of handlers and hooks that have outlived their holding of the partition.",
            ["group"],
        ),
    )
