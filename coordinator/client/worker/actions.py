"""Actions that a worker's core asks its executor for."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from coordinator.client.worker.scope import Run, Scope


@dataclass(frozen=True, slots=True)
class Locate:
    """Read the committed offsets of these scopes, and give each to `located` or `failed`."""

    scopes: tuple[Scope, ...]


@dataclass(frozen=True, slots=True)
class StartHandler:
    """Call the function of a run, and give its end to `ended`."""

    run: Run


@dataclass(frozen=True, slots=True)
class NotifyRevoking:
    """Set the `revoking` event of a scope."""

    scope: Scope


@dataclass(frozen=True, slots=True)
class CancelRun:
    """Cancel a run: a coroutine at once, a thread with its next call of the library."""

    run: Run


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Give the partition of a scope back to the group.

    `refused`: why this member will not have it now; empty: it would.
    """

    scope: Scope
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Ready:
    """The partition of a scope is prepared, or cannot be: `refused` says why."""

    scope: Scope
    refused: str = ""


@dataclass(frozen=True, slots=True)
class StartDrain:
    """Take no more partitions, and give all back within so many milliseconds.

    `leave`: even if the member's place is meant to be kept for its next process.
    """

    reason: str
    within_ms: int
    leave: bool


@dataclass(frozen=True, slots=True)
class LeaveMember:
    """Leave the group, and end."""

    reason: str


@dataclass(frozen=True, slots=True)
class Say:
    """Log a line. `error`: with its traceback. `run`: with the stack of what it does now."""

    level: int
    text: str
    error: BaseException | None = None
    run: Run | None = None


WorkerAction = (
    Locate
    | StartHandler
    | NotifyRevoking
    | CancelRun
    | GiveBack
    | Ready
    | StartDrain
    | LeaveMember
    | Say
)

INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR
