"""A shard: its groups, their timers and their writes, behind one deterministic function.

    Shard.step(input, now_ms, out)

It never waits. One step handles one input and then every follow-up that came of it, so that from
outside they are the same instant:

    input ─► GroupMachine.handle ─► Effects ─► defers ─► checks ─► writes
                  ▲                               │         │         │
                  └──────── inner queue ◄─────────┴─────────┴─────────┘

When several things fall due in the same millisecond, sessions end before phases do:
a join phase must not list a member whose time was up when it ended.

When very many fall due at once, a step handles some of them and asks for another tick at once,
so that other inputs are handled in between. No phase ends before all are handled.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.config import GroupConfig
from coordinator.core.machine import GroupMachine, refusal_unserved
from coordinator.core.payloads import PayloadReader
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.values.commands import (
    Command,
    CompleteJoinPhase,
    ExpireOffsets,
    InitialDelayElapsed,
    LeaseExpired,
    NoFollowUp,
    SessionExpired,
    SyncPhaseExpired,
)
from coordinator.core.values.errors import ErrorCode, Refused
from coordinator.core.values.ids import TOPICS_GROUP, CallId, IdSource
from coordinator.core.values.records import Record
from coordinator.core.values.requests import Request
from coordinator.core.values.session_messages import SessionHeartbeat, ToMember, unloaded
from coordinator.shard import invariants
from coordinator.shard.followers import (
    TAIL_BYTES,
    AckPolicy,
    FetchEntries,
    Followers,
    FollowersChanged,
)
from coordinator.shard.inputs import (
    Activate,
    Appended,
    AppendFailed,
    Input,
    ShardEffects,
    Tick,
    Unload,
)
from coordinator.shard.operations import GroupTimers
from coordinator.shard.recurring import Recurring
from coordinator.shard.replication import Replication
from coordinator.shard.stats import GroupStats, ShardStats, session_stats, shortest_lease_ms
from coordinator.shard.waits import Waits
from coordinator.shard.writes import WriteQueue
from timer.timer import Timer

ACTIVATE_SLICE = 50
"""Loaded groups activated in one step: a millisecond or two, in which heartbeats wait."""

ADVANCE_SLICE = 200
"""Timers that run or come down a level in one step. A session that ends costs some 11 us with
its consequences, so that with a hundred thousand other inputs are handled every 2 to 3 ms."""

PHASE_ENDS = (CompleteJoinPhase, InitialDelayElapsed, SyncPhaseExpired)


class Shard:
    """The deterministic host of some groups.

    Args:
        ids: makes member ids.
        payloads: parses the metadata and assignments of consumers.
        now_ms: epoch milliseconds; the clock never goes back.
        acks: when writes are acknowledged.
        tail_bytes: size of the tail kept for followers; 0: no followers.
        wheel_size: slots a level of the timing wheel has. 512 keeps the worst stall of a
            million timers ten times smaller than the classic 20.
    """

    def __init__(
        self,
        config: GroupConfig,
        ids: IdSource,
        payloads: PayloadReader,
        *,
        now_ms: int,
        acks: AckPolicy = AckPolicy(),  # noqa: B008  # A frozen value.
        tail_bytes: int = TAIL_BYTES,
        wheel_size: int = 512,
    ) -> None:
        self.machine = GroupMachine(config, ids, payloads)
        self._now_ms = now_ms
        self.timer = Timer(now_ms, wheel_size=wheel_size)
        self._inner: deque[Command] = deque()
        self._held: list[Command] = []  # Ends of phases, held back while the timer is behind.
        self.followers = Followers(acks, tail_bytes)
        self._waits = {
            name: Waits(lambda: self._now_ms) for name in ("join", "sync", "produce", "fetch")
        }
        self._group_timers = GroupTimers(
            self.timer,
            self.machine,
            self._inner.append,
            join_waits=self._waits["join"],
            sync_waits=self._waits["sync"],
        )
        self._sessions = self._group_timers.sessions  # `beat` is a hot path.
        self._timer_lag_ms = 0
        self._writes = WriteQueue(
            self.timer,
            now_ms=lambda: self._now_ms,
            apply=lambda record: self.machine.apply(record, self._now_ms),
            drop=self.machine.drop,
            post=self._inner.append,
            are_enough=lambda: self.followers.are_enough,
            timeout_ms=config.offset_commit_timeout_ms,
            waits=self._waits["produce"],
        )
        self._replication = Replication(
            self.timer,
            self.followers,
            self._writes,
            now_ms=lambda: self._now_ms,
            waits=self._waits["fetch"],
        )
        self._unloaded: ErrorCode | None = None
        self._offset_check = Recurring(
            self.timer,
            config.offsets_retention_check_interval_ms,
            lambda: self._inner.append(ExpireOffsets()),
        )
        self._offset_check.arm(now_ms)

    def replay(self, records: Iterable[Record], now_ms: int) -> None:
        """First half of a load: apply the records of the log, in order."""
        for record in records:
            self.machine.apply(record, now_ms)

    def restore(
        self, now_ms: int, out: ShardEffects, *, sequence: int, next_offset: int, raised: int = 0
    ) -> None:
        """Second half of a load: serve. Groups are activated when they are first used, or by
        `Activate`, with full session time-outs from then.

        Args:
            sequence: number of the last entry that was read; appends continue after it.
            next_offset: the offset of the first record that will be appended.
            raised: number by which all numbers are raised, because the store has lost commits.
        """
        self._now_ms = now_ms
        self._writes.start_at(sequence, next_offset)
        self.followers.tail.start_at(next_offset)
        if raised:
            out.persist((self.machine.raise_numbers(raised, now_ms),), NoFollowUp(""))
            self._carry_out(out)
        self.machine.restore()
        self._activate_some(out)
        self.machine.restore_sessions(now_ms, out)
        self._carry_out(out)
        self._finish(out)

    @property
    def is_active(self) -> bool:
        """True if all loaded groups have been activated."""
        return not self.machine.dormant_groups

    @property
    def is_unloaded(self) -> bool:
        """True if the shard was given up."""
        return self._unloaded is not None

    def records(self) -> list[Record]:
        """Return the records of all durable facts, for a snapshot.

        They cover exactly the entries that have been acknowledged.
        """
        return self.machine.records()

    def step(self, event: Input, now_ms: int, out: ShardEffects) -> None:
        """Handle one input and all follow-ups that it causes; adds their effects to `out`."""
        self._now_ms = now_ms
        if self._unloaded is not None:
            self._answer_unloaded(event, out)
            return
        match event:
            case Tick():
                self.machine.context.pauses = event.pauses
                due_ms = self.timer.next_expiration_ms()
                self._timer_lag_ms = 0 if due_ms is None else max(0, now_ms - due_ms)
                self.timer.advance_to(now_ms, ADVANCE_SLICE)
                self._let_sessions_go_first()
            case Activate():
                self._activate_some(out)
            case Appended():
                self._replication.appended(event)
            case FetchEntries():
                self._replication.fetch(event)
            case FollowersChanged():
                self._replication.expect(event)
            case AppendFailed():
                if self._writes.append_failed(event):
                    self._unload(ErrorCode.NOT_COORDINATOR, out)
            case Unload():
                self._unload(event.error, out)
            case SessionHeartbeat() if self._renews(event):
                out.wake(event.stream_id)
                out.next_deadline_ms = self.timer.next_expiration_ms()
                return
            case _:
                self._handle(event, out)
        self._drain(out)
        self._finish(out)

    def _renews(self, heartbeat: SessionHeartbeat) -> bool:
        """Fast path of a session heartbeat: True if it only moved the lease."""
        member = self.machine.session_beat(heartbeat, self._now_ms)
        operation = None if member is None else self._sessions.find(member.member_id)
        if member is None or operation is None:
            return False
        self.timer.rearm(operation, member.ends_at_ms)
        return True

    def beat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> bool:
        """Fast path of a heartbeat in a Stable group: only moves the session deadline.

        It allocates nothing, causes no follow-up, and leaves the next wake-up as it is.

        Returns:
            True if the session was extended; False, without any effect, if a step has to answer.
        """
        operation = self._sessions.find(member_id)
        if operation is None:
            return False
        deadline_ms = self.machine.beat(group_id, member_id, instance_id, generation, now_ms)
        if deadline_ms < operation.deadline_ms:
            return False
        self.timer.rearm(operation, deadline_ms)
        return True

    def take(self, stream_id: CallId, now_ms: int) -> ToMember | None:
        """Take the pending message of a session member's stream; None: nothing is pending."""
        return self.machine.take(stream_id, now_ms)

    def streams(self) -> list[CallId]:
        """Open streams of session members."""
        return list(self.machine.context.streams)

    def check(self) -> None:
        """Check all invariants, linear in everything. Tests call it after every step.

        Raises:
            InvariantViolated: names the invariant that does not hold.
        """
        if not self.is_unloaded:
            invariants.check(self.machine, self._group_timers, self._writes, self._now_ms)

    def stats(self) -> ShardStats:
        """Return the current numbers; linear in the groups. Any thread may call it."""
        groups = list(self.machine.groups.values())
        purgatories = {
            "join": self._group_timers.joins,
            "sync": self._group_timers.syncs,
            "heartbeat": self._sessions,
            "produce": self._writes.purgatory,
            "fetch": self._replication.fetches,
        }
        parked_joins = sum(
            group.parked_joins for group in groups if isinstance(group, ClassicGroup)
        )
        return ShardStats(
            groups=dict(
                Counter(group.state.value for group in groups if group.group_id != TOPICS_GROUP)
            ),
            members=sum(len(group.members) for group in groups),
            parked_joins=parked_joins,
            parked_syncs=len(self.machine.parked_calls) - parked_joins,
            timers_pending=len(self.timer),
            watched={name: p.watched for name, p in purgatories.items()},
            delayed={name: p.delayed for name, p in purgatories.items()},
            purged={name: p.purged_total for name, p in purgatories.items()},
            waits={name: waits.stats() for name, waits in self._waits.items()},
            timer_lag_ms=self._timer_lag_ms,
            pending_appends=self._writes.pending,
            high_watermark=self._writes.high_watermark,
            end_offset=self._writes.end_offset,
            sessions=session_stats(self._session_groups()),
            in_sync=len(self.followers.in_sync),
        )

    @property
    def group_count(self) -> int:
        return len(self.machine.groups)

    def shortest_lease_ms(self) -> int:
        """The shortest lease of a member of a session group; 0: there is none."""
        return shortest_lease_ms(self._session_groups())

    def members_of(self, client_host: str) -> int:
        """Number of members from a host, over all groups."""
        return self.machine.members_by_host[client_host]

    def has_session(self, group_id: str, incarnation: str) -> bool | None:
        """True if that incarnation has a session; None if there is no such group."""
        group = self.machine.groups.get(group_id)
        if not isinstance(group, SessionGroup):
            return None if group is None else False
        return group.of_incarnation(incarnation) is not None

    def has_static_member(self, group_id: str, instance_id: str | None) -> bool | None:
        """True if the group has that static member; None if there is no such group."""
        group = self.machine.groups.get(group_id)
        if group is None:
            return None
        return isinstance(group, ClassicGroup) and instance_id in group.static_members

    def group_stats(self, is_wanted: Callable[[str], bool]) -> list[GroupStats]:
        """Return numbers of the selected groups. Any thread may call it."""
        return [
            GroupStats(
                group.group_id,
                len(group.members),
                {key: stored.offset for key, stored in list(group.offsets.items())},
                dict(group.log_ends or {}),
            )
            for group in list(self.machine.groups.values())
            if group.group_id != TOPICS_GROUP and is_wanted(group.group_id)
        ]

    def _session_groups(self) -> Iterable[SessionGroup]:
        groups = list(self.machine.groups.values())
        return (group for group in groups if isinstance(group, SessionGroup))

    # --- One step ---

    def _handle(self, command: Command, out: ShardEffects) -> None:
        self.machine.handle(command, self._now_ms, out)
        self._carry_out(out)

    def _activate_some(self, out: ShardEffects) -> None:
        if self.machine.dormant_groups:
            self.machine.activate_some(ACTIVATE_SLICE, self._now_ms, out)
            self._carry_out(out)

    def _drain(self, out: ShardEffects) -> None:
        while self._inner:
            command = self._inner.popleft()
            if self.timer.is_behind and isinstance(command, PHASE_ENDS):
                self._held.append(command)
            else:
                self._handle(command, out)

    def _carry_out(self, out: ShardEffects) -> None:
        """Take out what the shard does itself, after each command."""
        for defer in out.defers:
            self._group_timers.defer(defer)
        for key in out.checks:
            self._group_timers.check(key)
        for write in out.writes:
            self._writes.add(write, self._now_ms)
        out.clear_internal()

    def _finish(self, out: ShardEffects) -> None:
        # Forming an entry may complete a wait at once, which may write again.
        out.append = self._writes.next_append()
        while self._inner:
            self._drain(out)
            out.append = out.append or self._writes.next_append()
        if self._offset_check.has_run:
            self._offset_check.arm(self._now_ms)
        self._replication.finish(out)
        out.next_deadline_ms = self.timer.next_expiration_ms()

    def _let_sessions_go_first(self) -> None:
        if not self.timer.is_behind:
            self._inner.extendleft(reversed(self._held))
            self._held.clear()
        due = sorted(
            self._inner, key=lambda command: not isinstance(command, SessionExpired | LeaseExpired)
        )
        self._inner.clear()
        self._inner.extend(due)

    # --- The end ---

    def _unload(self, error: ErrorCode, out: ShardEffects) -> None:
        self._writes.close(error)
        self._drain(out)
        self._replication.refuse(error, out)
        self.machine.unload(error, self._now_ms, out)
        out.clear_internal()
        out.ended += [(stream_id, unloaded(error)) for stream_id in self.streams()]
        self.machine.context.streams.clear()
        out.unloaded = True
        self._unloaded = error

    def _answer_unloaded(self, event: Input, out: ShardEffects) -> None:
        if isinstance(event, Tick):
            # Remaining timers expire without effect.
            self.timer.advance_to(self._now_ms, ADVANCE_SLICE)
            self._inner.clear()
        assert self._unloaded is not None
        if isinstance(event, FetchEntries):
            out.fetched.append((event.call_id, event.refusal(Refused(self._unloaded))))
        if isinstance(event, Request):
            out.replies.append((event.call_id, refusal_unserved(event, self._unloaded)))
        out.unloaded = True
