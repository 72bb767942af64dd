"""State of a worker as values, and its metrics if prometheus-client is installed.

Metrics never stop a worker: what the library or the disk refuses is a warning, and the worker goes
on without them. Workers of other threads, and this module when it is imported anew, use the metrics
that are registered already. `deploy/metrics.md` lists them, and the values of their labels.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator.assignors import TopicPartition
from coordinator.client.worker.core import WorkerCore
from coordinator.client.worker.held_partition import HandlerCall, HeldPartition, Stage


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition that the worker holds.

    Attributes:
        stage: what its handler does or waits for: starting, running, idle, backing off, ...
        since_ms: epoch milliseconds at which the stage began.
        due_ms: time at which the stage ends by itself; None: it does not.
        committed: the next offset to read. log_end: as it was reported; -1: it is not known.
        on_error: what the error policy does after the next failure.
        attempts: failures in a row. failures: of this holding. last_error: the last one's.
    """

    stage: str
    since_ms: int
    due_ms: int | None
    token: int
    committed: int
    log_end: int
    is_revoking: bool
    on_error: str
    attempts: int
    failures: int
    last_error: str

    @classmethod
    def of(cls, held: HeldPartition, *, in_session_group: bool) -> PartitionState:
        """State of a held partition."""
        return cls(
            str(held.stage), held.stage_since_ms, held.due_ms, held.token, held.committed,
            held.log_end, held.is_revoking,
            held.handler.policy.decide(held.attempts + 1, in_session_group=in_session_group),
            held.attempts, held.failures, held.last_error,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class LeftOver:
    """A call that was asked to end, and has not: no other handler of its partition starts before.

    `name`: of its thread or task.
    """

    partition: TopicPartition
    kind: str
    name: str
    is_thread: bool
    since_ms: int

    @classmethod
    def of(cls, call: HandlerCall) -> LeftOver:
        """State of a call."""
        return cls(call.held.key, str(call.kind), call.name, not call.is_async, call.since_ms)


@dataclass(frozen=True, slots=True)
class WorkerState:
    """State of a worker.

    Attributes:
        phase: `new` before it starts; then its member's `MemberState`, whose `last_error` says why
            it is not stable; `draining`, `stopped`.
        grants: how many times partitions were granted to it, one or several at once.
        counts: since the start, by event: runs, failures, retry, release, stop, stalls, overdue
            runs, blocked loops.
        loop_blocked_by: the handler that blocks the event loop of the others; empty: none does.
    """

    phase: str
    member_id: str = ""
    partitions: Mapping[TopicPartition, PartitionState] = field(default_factory=dict)
    left_over: tuple[LeftOver, ...] = ()
    stopping_because: str | None = None
    grants: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    loop_blocked_by: str = ""


def state_of(
    core: WorkerCore, phase: str, member_id: str, grants: int, loop_blocked_by: str
) -> WorkerState:
    """State of a worker that has started.

    Args:
        phase: while it is not stopping.
    """
    if core.stopping_because is not None and phase != "stopped":
        phase = "draining"
    # Copies are made in one step each, while the protocol's loop may change the originals.
    held_partitions = [*list(core.warming.values()), *list(core.held_partitions.values())]
    calls = [call for call in list(core.left_over) if not call.has_ended]
    calls += [call for held in held_partitions for call in list(held.calls) if call.is_cancelled]
    return WorkerState(
        phase,
        member_id,
        {
            held.key: PartitionState.of(held, in_session_group=core.in_session_group)
            for held in held_partitions
        },
        tuple(map(LeftOver.of, calls)),
        core.stopping_because,
        grants,
        Counter(core.counts),
        loop_blocked_by,
    )


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
        stages = Counter(
            held.stage for held in (*core.warming.values(), *core.held_partitions.values())
        )
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
