"""`worker.state`: what a worker does now, as values. May be read from any thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.assignors import TopicPartition
from coordinator.client.worker.core import WorkerCore
from coordinator.client.worker.scope import Run, Scope


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition that the worker holds.

    Attributes:
        stage: what its handler does or waits for: starting, running, idle, backing off, ...
        since_ms: epoch milliseconds at which the stage began.
        due_ms: time at which the stage ends by itself; None: it does not.
        committed: the next offset to read. log_end: as it was told; -1: it is not known.
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
    def of(cls, scope: Scope, *, in_session_group: bool) -> PartitionState:
        """State of a scope."""
        return cls(
            str(scope.stage), scope.stage_since_ms, scope.due_ms, scope.token, scope.committed,
            scope.log_end, scope.is_revoking,
            scope.handler.policy.decide(scope.attempts + 1, in_session_group=in_session_group),
            scope.attempts, scope.failures, scope.last_error,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class LeftOver:
    """A run that was told to end, and has not: no other handler of its partition starts before.

    `name`: of its thread or task.
    """

    partition: TopicPartition
    kind: str
    name: str
    is_thread: bool
    since_ms: int

    @classmethod
    def of(cls, run: Run) -> LeftOver:
        """State of a run."""
        return cls(run.scope.key, str(run.kind), run.name, not run.is_async, run.since_ms)


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
    scopes = [*list(core.warming.values()), *list(core.scopes.values())]
    runs = [run for run in list(core.left_over) if not run.has_ended]
    runs += [run for scope in scopes for run in list(scope.runs) if run.is_cancelled]
    return WorkerState(
        phase,
        member_id,
        {
            scope.key: PartitionState.of(scope, in_session_group=core.in_session_group)
            for scope in scopes
        },
        tuple(map(LeftOver.of, runs)),
        core.stopping_because,
        grants,
        Counter(core.counts),
        loop_blocked_by,
    )
