"""The effects of a handler: replies, writes, timers, checks and events.

A handler changes the group and adds everything else to `out`. The shard then acts in a fixed order:
timers and watches first, then checks, then writes; replies and events leave with the Outbox.
Source: the `Ready` struct of etcd's raft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.core.events import Event
from coordinator.core.ids import CallId
from coordinator.core.records import Record
from coordinator.core.replies import JoinReply, Reply
from coordinator.core.requests import Request
from coordinator.core.written import JoinDurable, Resume, WriteFollowUp


@dataclass(frozen=True, slots=True)
class JoinKey:
    """Watched by the operations that end a group's join phase."""

    group_id: str


@dataclass(frozen=True, slots=True)
class SyncKey:
    """Watched by the operation that ends a group's sync phase."""

    group_id: str


@dataclass(frozen=True, slots=True)
class MemberKey:
    """Watched by a member's delayed heartbeat."""

    group_id: str
    member_id: str


WatchKey = JoinKey | SyncKey | MemberKey


@dataclass(frozen=True, slots=True)
class DeferJoin:
    """An ordinary join phase: ends when all have joined, at `deadline_ms` at the latest."""

    group_id: str
    generation: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class DeferInitialJoin:
    """A slice of the initial delay: ends at `deadline_ms`, never early."""

    group_id: str
    generation: int
    delay_ms: int
    remaining_ms: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class DeferSync:
    """A sync phase: ends when all have synced, at `deadline_ms` at the latest."""

    group_id: str
    generation: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class DeferHeartbeat:
    """A member's (or pending id's) deadline. A member has one: it replaces the one before."""

    group_id: str
    member_id: str
    deadline_ms: int


Defer = DeferJoin | DeferInitialJoin | DeferSync | DeferHeartbeat


@dataclass(frozen=True, slots=True)
class Write:
    """Records to append together, and the command to post at their result or at a time-out.

    Without records it waits for the results of all earlier writes.

    `settled` is posted at the result of the append, however late: with NONE the records are
    durable, with an error they never will be. `then` may be posted before it, by a time-out.
    `deadline_ms` is the time-out, if it is to be earlier than the configured one.
    """

    records: tuple[Record, ...]
    then: WriteFollowUp
    settled: WriteFollowUp | None = None
    deadline_ms: int | None = None


class Outcome:
    """Collector of effects, passed to every handler."""

    __slots__ = ("checks", "defers", "events", "replies", "writes")

    def __init__(self) -> None:
        self.replies: list[tuple[CallId, Reply]] = []
        self.writes: list[Write] = []
        self.defers: list[Defer] = []
        self.checks: list[WatchKey] = []
        self.events: list[Event] = []

    def reply(self, call_id: CallId, reply: Reply) -> None:
        """Answer a call now."""
        self.replies.append((call_id, reply))

    def persist(
        self,
        records: Sequence[Record],
        then: WriteFollowUp,
        *,
        settled: WriteFollowUp | None = None,
    ) -> None:
        """Write `records`, all or none. See `Write` for `then` and `settled`."""
        self.writes.append(Write(tuple(records), then, settled))

    def join_when_durable(self, call_id: CallId, reply: JoinReply) -> None:
        """Answer a JoinGroup once everything written so far is durable."""
        self.writes.append(Write((), JoinDurable(call_id, reply)))

    def resume_when_settled(self, request: Request, deadline_ms: int) -> None:
        """Handle `request` again after the results of all writes so far, or refuse it."""
        self.writes.append(Write((), Resume(request, deadline_ms), deadline_ms=deadline_ms))

    def defer(self, defer: Defer) -> None:
        """Arm a delayed operation."""
        self.defers.append(defer)

    def check(self, key: WatchKey) -> None:
        """Have the operations watched under `key` checked again."""
        self.checks.append(key)

    def note(self, event: Event) -> None:
        """Emit an event."""
        self.events.append(event)
