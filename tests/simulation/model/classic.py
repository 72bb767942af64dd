"""The classic protocol as a state space: clients that call in any order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from coordinator.core.config import GroupConfig
from coordinator.core.group import GroupState
from coordinator.core.values.commands import CallCancelled
from coordinator.core.values.effects import Effects
from coordinator.core.values.errors import ErrorCode, InvariantViolated
from coordinator.core.values.ids import CallId
from coordinator.core.values.records import Record
from coordinator.core.values.replies import JoinReply
from coordinator.core.values.requests import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from coordinator.runtime.codec import decode, encode
from coordinator.runtime.payloads import PAYLOADS
from coordinator.shard.inputs import (
    Append,
    Appended,
    AppendFailed,
    AppendFailure,
    ShardEffects,
    Tick,
)
from coordinator.shard.shard import Shard
from coordinator.testing.virtual import CountingIds
from tests.kit.steps import restored, stepped
from tests.simulation.model.digest import Digest

GROUP = "g"
BEGIN_MS = 1_700_000_000_000
FIRST_CALL = 10_000_000_000
SESSION_MS = REBALANCE_MS = 3_000

Action = tuple[Any, ...]


class Client:
    """Knowledge of one client."""

    __slots__ = ("call", "generation", "heard", "is_leader", "member_id", "members")

    def __init__(self) -> None:
        self.member_id, self.generation = "", -1
        self.call: CallId | None = None
        self.is_leader = False
        self.members: tuple[str, ...] = ()
        self.heard = ""


class ClassicSpace:
    """Some clients of one group; appends, time and calls happen when an action says so."""

    def __init__(self, *, members: int = 2, faults: int = 2) -> None:
        self.is_checked = False
        self.faults = faults
        self.now = BEGIN_MS
        self.config = GroupConfig(
            group_initial_rebalance_delay_ms=500, group_min_session_timeout_ms=1_000
        )
        self.ids = CountingIds()
        self.calls = itertools.count(FIRST_CALL)
        self.clients = [Client() for _ in range(members)]
        self.records: list[Record] = []
        self.append: Append | None = None
        self.written: list[Record] = []
        self.due: int | None = None
        self.is_lost = False
        self.handled = 0
        self.generations: dict[int, tuple[str, ...]] = {}
        self.lines: list[str] = []
        self._load()

    def _load(self) -> None:
        self.shard = Shard(self.config, self.ids, PAYLOADS, now_ms=self.now, wheel_size=20)
        handle = self.shard.machine.handle

        def counted(command: Any, now_ms: int, out: Effects) -> None:
            self.handled += 1
            handle(command, now_ms, out)

        self.shard.machine.handle = counted  # type: ignore[method-assign]
        self.shard.replay(self.records, self.now)
        self.append, self.written, self.is_lost = None, [], False
        for client in self.clients:
            client.call = None
        self._carry_out(restored(self.shard, self.now, sequence=0, next_offset=0))

    # --- What may happen ---

    def actions(self) -> Iterator[Action]:
        """See `Space`."""
        if self.is_lost:
            yield ("restart",)
            return
        if self.append is not None:
            yield ("append", "written")
            if self.faults:
                yield from (("append", how) for how in ("full", "away", "lost answer", "fenced"))
        if self.due is not None:
            yield ("time",)
        for n, client in enumerate(self.clients):
            if client.call is not None:
                yield ("cancel", n)
                continue
            yield ("join", n)
            if client.member_id:
                yield ("leave", n)
            if client.generation >= 0:
                yield ("sync", n)
                yield ("beat", n)
        if self.faults:
            yield ("restart",)

    def act(self, action: Action) -> None:
        """See `Space`."""
        kind, *rest = action
        if kind in ("cancel", "restart") or (kind == "append" and rest != ["written"]):
            self.faults = max(0, self.faults - 1)
        _ACTS[kind](self, *rest)

    def _join(self, n: int) -> None:
        client = self.clients[n]
        client.call = CallId(next(self.calls))
        self._step(
            JoinGroup(
                call_id=client.call,
                group_id=GROUP,
                member_id=client.member_id,
                client_id=f"c{n}",
                protocol_type="consumer",
                protocols=(("range", b""),),
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
            )
        )

    def _sync(self, n: int) -> None:
        client = self.clients[n]
        client.call = CallId(next(self.calls))
        shares = tuple((member, member.encode()) for member in client.members)
        self._step(
            SyncGroup(
                call_id=client.call,
                group_id=GROUP,
                member_id=client.member_id,
                generation=client.generation,
                assignments=shares if client.is_leader else (),
            )
        )

    def _beat(self, n: int) -> None:
        client = self.clients[n]
        client.call = CallId(next(self.calls))
        self._step(
            Heartbeat(
                call_id=client.call,
                group_id=GROUP,
                member_id=client.member_id,
                generation=client.generation,
            )
        )

    def _leave(self, n: int) -> None:
        client = self.clients[n]
        leaving = (LeavingMember(client.member_id),)
        self._step(LeaveGroup(call_id=CallId(next(self.calls)), group_id=GROUP, members=leaving))
        client.member_id, client.generation = "", -1

    def _cancel(self, n: int) -> None:
        client = self.clients[n]
        assert client.call is not None
        call, client.call = client.call, None
        self._step(CallCancelled(call))

    def _pass_time(self) -> None:
        before = self.handled
        for _ in range(100):
            if self.due is None or self.handled > before:
                return
            self.now = max(self.now, self.due)
            had = self.append is not None
            self._step(Tick())
            if self.append is not None and not had:
                return

    def _settle(self, how: str) -> None:
        append, self.append = self.append, None
        assert append is not None
        if how in ("written", "lost answer") and not self.written:
            self.written = [decode(encode(record)) for record in append.records]
            self.records += self.written
        match how:
            case "written":
                self.written = []
                self._step(Appended(append.sequence))
            case "full":
                self._step(AppendFailed(append.sequence, AppendFailure.UNAVAILABLE, True))
            case "away":
                self._step(AppendFailed(append.sequence, AppendFailure.UNAVAILABLE))
            case "lost answer":
                self._step(AppendFailed(append.sequence, AppendFailure.AMBIGUOUS))
            case "fenced":
                self._step(AppendFailed(append.sequence, AppendFailure.FENCED))

    # --- What comes of it ---

    def _step(self, event: Any) -> None:
        effects = stepped(self.shard, event, self.now)
        if self.is_checked:
            self.shard.check()
        self._carry_out(effects)

    def _carry_out(self, effects: ShardEffects) -> None:
        self.due = effects.next_deadline_ms
        self.is_lost = self.is_lost or effects.unloaded
        if effects.append is not None:
            self.append = effects.append
        by_call = {client.call: client for client in self.clients if client.call is not None}
        for call, reply in effects.replies:
            client = by_call.get(call)
            if client is None:
                continue
            client.call = None
            self.lines.append(f"c{self.clients.index(client)} hears {reply}")
            self._receive(client, reply)

    def _receive(self, client: Client, reply: Any) -> None:
        if isinstance(reply, JoinReply) and reply.error is ErrorCode.NONE:
            client.member_id, client.generation = reply.member_id, reply.generation
            client.members = tuple(member.member_id for member in reply.members)
            client.is_leader = reply.leader == reply.member_id
            told = reply.leader, reply.protocol_name
            if self.generations.setdefault(reply.generation, told) != told:
                raise InvariantViolated(f"generation {reply.generation} has two leaders")
        elif reply.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = reply.member_id
        elif reply.error is ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id, client.generation = "", -1
        client.heard = reply.error.name

    # --- A state ---

    def digest(self) -> bytes:
        """See `Space`."""
        shard, writes = self.shard, self.shard._writes
        timers = shard._group_timers
        group = shard.machine.groups.get(GROUP)
        slots = {name for base in type(group).__mro__ for name in getattr(base, "__slots__", ())}
        left_out = {"parked_calls", "members_by_host", "state_changed_at_ms", "_members_by_host"}
        left_out |= {"_parked_calls", "journal", "_account", "rebalance_began_ms"}
        return Digest(self.now).of(
            [(c.member_id, c.generation, c.call, c.is_leader, c.members) for c in self.clients],
            {n: getattr(group, n, None) for n in sorted(slots - left_out)},
            [
                (type(op).__name__, op.deadline_ms)
                for purgatory in (timers.joins, timers.syncs, timers.sessions)
                for key in purgatory._watch_lists
                for op in purgatory.waiting(key)
            ],
            None if self.append is None else self.append.records,
            [(op.records, op._then, op._follow_up, op.deadline_ms) for op in writes._queued],
            [(op._then, op._follow_up, op.deadline_ms) for op in writes._under_way],
            sorted(shard.machine._waiting),
            (self.written, self.faults, self.is_lost),
        )

    def said(self) -> list[str]:
        """See `Space`."""
        lines, self.lines = self.lines, []
        return lines

    def heal(self) -> None:
        """Clients that behave are soon in a Stable group."""
        self.faults, self.is_checked = 0, True
        until_ms = self.now + 30_000
        if self.is_lost:
            self._load()
        while self.now < until_ms:
            self._write_all()
            for n, client in enumerate(self.clients):
                if client.call is None:
                    self._behave(n, client)
            self._write_all()
            next_ms = self.now + 250
            while self.due is not None and self.due <= next_ms:
                self.now = max(self.now, self.due)
                self._step(Tick())
                self._write_all()
            self.now = next_ms
        group = self.shard.machine.groups.get(GROUP)
        if group is None or group.state is not GroupState.STABLE:
            raise InvariantViolated(f"after 30 s the group is {group and group.state}")
        if len(group.members) != len(self.clients):
            raise InvariantViolated(f"after 30 s the group has {len(group.members)} members")

    def _write_all(self) -> None:
        while self.append is not None:
            self._settle("written")

    def _behave(self, n: int, client: Client) -> None:
        if client.generation < 0 or client.heard == "REBALANCE_IN_PROGRESS":
            client.heard = ""
            self._join(n)
        elif client.heard == "synced":
            self._beat(n)
            client.heard = client.heard if client.heard != "NONE" else "synced"
        else:
            self._sync(n)
            if client.call is None and client.heard == "NONE":
                client.heard = "synced"


_ACTS: dict[str, Callable[..., None]] = {
    "append": ClassicSpace._settle,
    "time": ClassicSpace._pass_time,
    "restart": ClassicSpace._load,
    "join": ClassicSpace._join,
    "sync": ClassicSpace._sync,
    "beat": ClassicSpace._beat,
    "leave": ClassicSpace._leave,
    "cancel": ClassicSpace._cancel,
}
