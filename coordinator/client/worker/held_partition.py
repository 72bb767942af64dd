"""State of a partition that a worker holds, and of the calls of its handler. `core.py` decides.

One for each holding: it begins when the partition is assigned, and ends when it is given back,
released or lost. A call of its handler or of a hook that does not end with it is left over: nothing
else may run for its partition in this process until that has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from coordinator.assignors import TopicPartition
from coordinator.client.member.ledger import FOREVER_MS, Holding
from coordinator.client.worker.handlers import CallKind, TopicHandler


class Stage(StrEnum):
    """Activity of a held partition, or what it waits for; shown in `worker.state`."""

    WARMING = "warming"
    """It is prepared for this process, and belongs to another member still."""
    STARTING = "starting"
    """Its committed offset is being read."""
    READY = "waiting for a slot"
    BLOCKED = "waiting for the former handler to end"
    RUNNING = "running"
    STALLED = "stalled"
    """It made no progress and was asked to end."""
    IDLE = "idle"
    BACKING_OFF = "backing off"
    PAUSING = "pausing after a release"
    DONE = "done"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class HeldPartition:
    """One holding. Compared by identity.

    Attributes:
        ends_ms: time at which it ends at the latest; 0: it has ended. Read by any thread.
        committed: the next offset to read: the last one committed, or where the start policy says.
        compared: `committed` when the end of the log was reported the last time.
        is_short: the log was found to end before that.
    """

    key: TopicPartition
    token: int
    handler: TopicHandler
    holding: Holding
    since_ms: int
    stage: Stage = Stage.STARTING
    stage_since_ms: int = 0
    ends_ms: int = FOREVER_MS
    ended_because: str = ""
    is_revoking: bool = False
    is_suspended: bool = False
    is_warm: bool = False
    is_done: bool = False
    is_located: bool = False
    has_started: bool = False
    committed: int = -1
    stored: int = -1
    metadata: str = ""
    log_begin: int = 0
    log_end: int = -1
    compared: int = -1
    is_short: bool = False
    progress_ms: int = 0
    waits_since_ms: int | None = None
    attempts: int = 0
    failures: int = 0
    last_error: str = ""
    due_ms: int | None = None
    calls: list[HandlerCall] = field(default_factory=list)

    @property
    def has_ended(self) -> bool:
        """True once the partition was given back, released or lost."""
        return self.stage is Stage.ENDED

    def enter(self, stage: Stage, now_ms: int, due_ms: int | None = None) -> None:
        """Go to another stage; `due_ms`: when something is to be done there."""
        self.stage, self.stage_since_ms, self.due_ms = stage, now_ms, due_ms


@dataclass(slots=True, eq=False)
class HandlerCall:
    """One call of a handler or a hook. Compared by identity.

    Attributes:
        is_cancelled: it was asked to end; from then on every call on its partition raises.
        verdict: the error that counts when it ends, whatever it ends with.
        is_overdue: it has not ended though it was asked to, and is not waited for any more.
        is_named: a warning has said so.
        is_watched: a timer will look whether it has stalled.
    """

    held: HeldPartition
    kind: CallKind
    is_async: bool
    since_ms: int
    name: str = ""
    is_cancelled: bool = False
    has_ended: bool = False
    is_overdue: bool = False
    is_named: bool = False
    is_watched: bool = False
    verdict: Exception | None = None
