"""The effects of rules: replies, writes, timers, checks and events.

A rule changes the group and adds everything else to `out`, the one bag of its input: the shard and
its driver add their parts to the same object (`ShardEffects`, `HostEffects`). After each command
the shard takes out what is its own, in a fixed order: timers and watches first, then checks, then
writes. Replies, events and ends of streams leave with the bag.
Source: the `Ready` struct of etcd's raft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from coordinator.core.values.commands import AnswerJoin, HandleAgain, WriteFollowUp
from coordinator.core.values.events import Event
from coordinator.core.values.ids import CallId
from coordinator.core.values.plans import PlanInput
from coordinator.core.values.records import Record
from coordinator.core.values.replies import JoinReply, Reply
from coordinator.core.values.requests import Request
from coordinator.core.values.session_messages import StreamEnd


@dataclass(frozen=True, slots=True)
class ComputePlan:
    """Asks the host for a plan: `planner.plan(state)`, away from the steps of the shard."""

    group_id: str
    number: int
    state: PlanInput


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


@dataclass(frozen=True, slots=True)
class DeferLease:
    """The end of a session member's lease. A member has one: it replaces the one before."""

    group_id: str
    member_id: str
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class DeferPhase:
    """The end of a phase of a hand-off."""

    group_id: str
    topic: str
    partition: int
    handoff_id: int
    phase: str
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class DeferPlan:
    """The next plan of a session group. A group has one: it replaces the one before."""

    group_id: str
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class DeferReservation:
    """The end of the time for which partitions are reserved for a name."""

    group_id: str
    name: str
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class DeferLeave:
    """The deadline of a session member's Leave(DRAIN)."""

    group_id: str
    member_id: str
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class DeferRetry:
    """The next attempt at writes about a session group that the log has refused."""

    group_id: str
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Write:
    """Records to append together, and the command to post at their result or at a time-out.

    Without records it waits for the results of all earlier writes.

    `follow_up` is posted at the result of the append, however late: with NONE the records are
    durable, with an error they never will be. `then` may be posted before it, by a time-out.
    `deadline_ms` is the time-out, if it is to be earlier than the configured one. One that is not
    `is_retried` is refused as soon as the log is unavailable, unless it may be written.
    """

    records: tuple[Record, ...]
    then: WriteFollowUp
    follow_up: WriteFollowUp | None = None
    deadline_ms: int | None = None
    is_retried: bool = True


@dataclass(slots=True)
class Effects:
    """Collector of effects, passed to every rule.

    `writes`, `defers`, `checks` and streams that were `opened` are those of one command, for the
    shard; the others are those of all commands of the input.
    """

    replies: list[tuple[CallId, Reply]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    wakes: list[CallId] = field(default_factory=list)
    ended: list[tuple[CallId, StreamEnd]] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    defers: list[Defer] = field(default_factory=list)
    checks: list[WatchKey] = field(default_factory=list)
    computes: list[ComputePlan] = field(default_factory=list)
    opened: list[tuple[CallId, str, str]] = field(default_factory=list)

    def reply(self, call_id: CallId, reply: Reply) -> None:
        """Answer a call now."""
        self.replies.append((call_id, reply))

    def persist(
        self,
        records: Sequence[Record],
        then: WriteFollowUp,
        *,
        follow_up: WriteFollowUp | None = None,
        is_retried: bool = True,
    ) -> None:
        """Write `records`, all or none. See `Write` for `then`, `follow_up` and `is_retried`."""
        self.writes.append(Write(tuple(records), then, follow_up, is_retried=is_retried))

    def join_when_durable(self, call_id: CallId, reply: JoinReply) -> None:
        """Answer a JoinGroup once everything written so far is durable."""
        self.writes.append(Write((), AnswerJoin(call_id, reply)))

    def handle_again_when_written(self, request: Request, deadline_ms: int) -> None:
        """Handle `request` again after the results of all writes so far, or refuse it."""
        self.writes.append(Write((), HandleAgain(request, deadline_ms), deadline_ms=deadline_ms))

    def defer(self, defer: Defer) -> None:
        """Arm a delayed operation."""
        self.defers.append(defer)

    def check(self, key: WatchKey) -> None:
        """Have the operations watched under `key` checked again."""
        self.checks.append(key)

    def compute(self, group_id: str, number: int, state: PlanInput) -> None:
        """Have a plan computed outside of the shard."""
        self.computes.append(ComputePlan(group_id, number, state))

    def note(self, event: Event) -> None:
        self.events.append(event)

    def open_stream(self, stream_id: CallId, group_id: str, member_id: str) -> None:
        """A member of a session group has a stream from now on."""
        self.opened.append((stream_id, group_id, member_id))

    def wake(self, stream_id: CallId | None) -> None:
        """A message is pending for a stream; None: the member has none."""
        if stream_id is not None:
            self.wakes.append(stream_id)

    def end_stream(self, stream_id: CallId, last: StreamEnd) -> None:
        """End a stream, with a last message."""
        self.ended.append((stream_id, last))


WatchKey = JoinKey | SyncKey | MemberKey

Defer = (
    DeferJoin
    | DeferInitialJoin
    | DeferSync
    | DeferHeartbeat
    | DeferLease
    | DeferPhase
    | DeferPlan
    | DeferReservation
    | DeferLeave
    | DeferRetry
)
