"""Actions that a worker's core asks its driver for."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from coordinator.client.worker.held_partition import HandlerCall, HeldPartition


@dataclass(frozen=True, slots=True)
class Locate:
    """Read the committed offsets of these, and give each to `located` or `not_located`."""

    held_partitions: tuple[HeldPartition, ...]


@dataclass(frozen=True, slots=True)
class StartHandler:
    """Make a call, and give its end to `ended`."""

    call: HandlerCall


@dataclass(frozen=True, slots=True)
class NotifyRevoking:
    """Set the `revoking` event of a held partition."""

    held: HeldPartition


@dataclass(frozen=True, slots=True)
class CancelRun:
    """Cancel a call: a coroutine at once, a thread with its next call of the library."""

    call: HandlerCall


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Give a partition back to the group.

    `refused`: why this member will not have it now; empty: it would.
    """

    held: HeldPartition
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Ready:
    """A partition is prepared, or cannot be: `refused` says why."""

    held: HeldPartition
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
    """Log a line. `error`: with its traceback. `call`: with the stack of what it does now."""

    level: int
    text: str
    error: BaseException | None = None
    call: HandlerCall | None = None


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
