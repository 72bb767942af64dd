"""The session protocol as a state space: processes that do anything that the protocol allows.

A `SessionSpace` is a scenario of the kit in which nothing happens by itself: appends are
settled, time passes and processes speak when an action says so. Processes are honest: what they
have released they do not work on, and they stop by their own clocks. Else they do as they like.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from coordinator.core.sessions.group import SessionGroup
from coordinator.core.values.effects import Effects
from coordinator.core.values.errors import ErrorCode, InvariantViolated
from coordinator.core.values.ids import CallId
from coordinator.core.values.policy import Mode
from coordinator.core.values.records import PolicyStored, Record, SessionMemberStored
from coordinator.core.values.session_messages import Order, Standing, StreamEnded, StreamRefused
from coordinator.runtime.codec import decode, encode
from coordinator.shard.inputs import (
    Append,
    Appended,
    AppendFailed,
    AppendFailure,
    ShardEffects,
    Tick,
)
from coordinator.shard.shard import Shard
from tests.kit.own_clock import OwnClock
from tests.kit.session_scenario import (
    GROUP,
    NO_STREAM,
    ScenarioMember,
    SessionScenario,
    with_policy,
)
from tests.kit.steps import stepped
from tests.simulation.model.digest import Digest

BEGIN_MS = 1_700_000_000_000
FIRST_CALL = 10_000_000_000
HEALED_MS = 60_000
"""Time in which a healed group has every partition held: leases, hand-offs and forced ones."""

Action = tuple[Any, ...]


class SessionSpace(SessionScenario):
    """Some processes of one group, and the actions that are possible."""

    def __init__(
        self,
        *,
        members: int = 2,
        partitions: int = 2,
        mode: str = "simple",
        faults: int = 2,
        is_named: bool = True,
    ) -> None:
        self.is_checked = False
        self.is_lost = False
        self.unacknowledged: list[Record] = []
        self.faults = faults
        policy = with_policy(
            mode=Mode(mode), drain_timeout_ms=3_000, warm_timeout_ms=5_000, lease_ms=4_000
        )
        self.is_unseen = [False] * members
        super().__init__(policy, now_ms=BEGIN_MS, group_min_lease_ms=2_000)
        self._calls = itertools.count(FIRST_CALL)
        self.handled = 0
        self.held = []
        for n in range(members):
            name = f"w-{'abcdef'[n]}"
            self.member(name if is_named else "", {"t": partitions}, f"i-{name}-1")
        self.births = [1] * members
        self.has_stopped = [False] * members
        self.is_dead = [False] * members
        self.versions = [0] * members
        self.heard = [0] * members
        self._last_said: Append | None = None

    def _new_shard(self) -> Shard:
        shard = super()._new_shard()
        handle = shard.machine.handle

        def counted(command: Any, now_ms: int, out: Effects) -> None:
            self.handled += 1
            handle(command, now_ms, out)

        shard.machine.handle = counted  # type: ignore[method-assign]
        return shard

    def digest(self) -> bytes:
        """See `Space`."""
        shard = self.shard
        timers = shard._group_timers
        members = [
            (
                member.name,
                member.incarnation,
                member.stream,
                member.reply is None or (member.reply.standing, member.reply.error),
                type(member.end).__name__,
                member.orders,
                member.clock.facts(),
                self.is_unseen[n],
                self.is_dead[n],
                self._lead_of(n, member),
            )
            for n, member in enumerate(self.members)
        ]
        pending = [
            (
                name,
                [(type(op).__name__, getattr(op, "command", None), op.deadline_ms) for op in ops],
            )
            for name, purgatory in (
                ("leases", timers.sessions),
                ("commands", timers.handoffs),
                ("plans", timers.plans),
            )
            for ops in [[op for key in purgatory._watch_lists for op in purgatory.waiting(key)]]
        ]
        writes = shard._writes
        return Digest(self.now).of(
            members,
            {name: _facts_of(group) for name, group in shard.machine.groups.items()},
            pending,
            [append.records for append in self.held or ()],
            [(op.records, op._then, op._follow_up, op.deadline_ms) for op in writes._queued],
            [(op._then, op._follow_up, op.deadline_ms) for op in writes._under_way],
            (self.unacknowledged, writes._is_reached),
            shard.machine.numbers.last_token,
            sorted(shard.machine._waiting),
            (self.faults, self.is_lost),
        )

    def _lead_of(self, n: int, member: ScenarioMember) -> tuple[int, ...]:
        """Lead of a process over what the coordinator knows of it."""
        group = self.shard.machine.groups.get(GROUP)
        for known in (*group.members.values(), *group.waiting.values()) if group else ():
            if known.record.incarnation == member.incarnation:
                return (
                    member.number - known.number,
                    known.mailbox.version - self.versions[n],
                    member.stream_number - known.stream_number,
                    member.number - known.mailbox.ack if known.mailbox.ack >= 0 else -1,
                )
        return ()

    def said(self) -> list[str]:
        """See `Space`."""
        lines = []
        for n, member in enumerate(self.members):
            new, self.heard[n] = member.received[self.heard[n] :], len(member.received)
            for _, message in new:
                orders = ", ".join(
                    f"{order.order.value} {order.topic}-{order.partition} under {order.token}"
                    for order in message.partitions
                )
                kind = "whole" if message.based_on < 0 else "difference"
                lines.append(f"{member.name or n} hears ({kind}): {orders or 'nothing'}")
        for append in self.held or ():
            if append is not self._last_said:
                self._last_said = append
                lines += [f"to the log: {_in_short(record)}" for record in append.records]
        return lines

    # --- What may happen ---

    def actions(self) -> Iterator[Action]:
        """The actions that are possible now."""
        if self.is_lost:
            yield ("restart",)
            return
        if self.held:
            yield ("append", "written")
            if self.faults:
                yield ("append", "full")
                yield ("append", "away")
                yield ("append", "lost answer")
                yield ("append", "fenced")
        if self.due is not None:
            yield ("time",)
        for n, member in enumerate(self.members):
            yield from self._actions_of(n, member)
        if self.faults:
            yield ("restart",)

    def _actions_of(self, n: int, member: ScenarioMember) -> Iterator[Action]:
        if not member.stream:
            yield ("attach", n)
            if self.faults and not self.is_dead[n]:
                yield ("attach unseen", n)
            return
        if self.faults:
            yield ("cut", n)
            yield ("crash", n)
            if not self.is_unseen[n]:
                yield ("deaf", n)
        if member.reply is None or member.reply.error is not ErrorCode.NONE or self.has_stopped[n]:
            return
        yield ("beat", n)
        if member.reply.standing is Standing.WAITING and not member.orders:
            return
        yield ("beat with held", n)
        for partition, order in sorted(member.orders.items()):
            match order.order:
                case Order.WARM:
                    yield ("ready", n, partition)
                    yield ("refused", n, partition)
                case _:
                    yield ("released", n, partition)
        yield ("leave", n, "now")
        yield ("leave", n, "drain")
        if member.name:
            yield ("leave", n, "return")

    def act(self, action: Action) -> None:
        """Let one action happen.

        Raises:
            InvariantViolated: something does not hold after it, if `is_checked`.
        """
        kind, *rest = action
        if kind in ("cut", "crash", "deaf", "restart", "attach unseen") or (
            kind == "append" and rest != ["written"]
        ):
            self.faults = max(0, self.faults - 1)
        _ACTS[kind](self, *rest)

    def _attach(self, n: int) -> None:
        member = self.members[n]
        lost = isinstance(member.end, StreamRefused) or (
            member.reply is not None and member.reply.error is not ErrorCode.NONE
        )
        if self.is_dead[n]:
            self.births[n] += 1
            self.is_dead[n] = False
            member.incarnation = f"i-{member.name}-{self.births[n]}"
            member.stream_number = member.number = 0
            lost = True
        if lost or member.end is not None:
            member.clock.stops_all()
            member.orders.clear()
            member.clock = OwnClock()
        self.is_unseen[n] = self.has_stopped[n] = False
        member.attach(started_at_ms=self.births[n])

    def _attach_unheard(self, n: int) -> None:
        member = self.members[n]
        self.is_unseen[n] = True
        member.attach(started_at_ms=self.births[n])

    def _beat(self, n: int) -> None:
        self.members[n].beat(applied=self.versions[n])

    def _beat_with_held(self, n: int) -> None:
        member = self.members[n]
        member.beat(held=member.held, applied=self.versions[n])

    def _ack(self, kind: str) -> Callable[[int, Any], None]:
        return lambda n, partition: self.members[n].ack(partition, kind)

    def _leave(self, n: int, kind: str) -> None:
        self.has_stopped[n] = kind != "drain"  # It takes no orders any more.
        self.members[n].leave(kind, 2_000)

    def _cut(self, n: int) -> None:
        member = self.members[n]
        stream, member.stream = member.stream, NO_STREAM
        self.streams.pop(stream, None)
        self._end_stream(stream)

    def _end_stream(self, stream: CallId) -> None:
        self.send(StreamEnded(stream_id=stream, group_id=GROUP))

    def _crash(self, n: int) -> None:
        self.members[n].clock.stops_all()
        self.members[n].orders.clear()
        self.is_dead[n] = True
        self._cut(n)

    def _deafen(self, n: int) -> None:
        self.is_unseen[n] = True

    def _pass_time(self) -> None:
        """Until something happens of itself."""
        before = self.handled
        for _ in range(100):
            if self.due is None or self.handled > before or self.is_lost:
                return
            self.now = max(self.now, self.due)
            had = bool(self.held)
            self._step(Tick())
            if self.held and not had:
                return

    def _settle(self, how: str) -> None:
        assert self.held
        append = self.held.pop(0)
        match how:
            case "written":
                self._write(append)
                self._acknowledge()
                self._step(Appended(append.sequence))
            case "full":
                self._step(AppendFailed(append.sequence, AppendFailure.UNAVAILABLE, True))
            case "away":
                self._step(AppendFailed(append.sequence, AppendFailure.UNAVAILABLE))
            case "lost answer":
                self._write(append)
                self._step(AppendFailed(append.sequence, AppendFailure.AMBIGUOUS))
            case "fenced":
                self._step(AppendFailed(append.sequence, AppendFailure.FENCED))

    def _write(self, append: Append) -> None:
        if append.attempt == 1 or not self.unacknowledged:
            self.unacknowledged = [decode(encode(record)) for record in append.records]
            self.records += self.unacknowledged

    def _acknowledge(self) -> None:
        records, self.unacknowledged = self.unacknowledged, []
        if self.is_checked:
            self._nobody_else_works_on(records)
        self.witness.acknowledged(records, self.now)

    def _begin_anew(self) -> None:
        self.now += 1_000  # Tokens rise with the second.
        self._acknowledge()
        self.is_lost = False
        self.restart()
        self.held = [each for each in [self._first] if each]

    # --- What is said ---

    def _step(self, event: Any) -> None:
        self._first: Append | None = None
        self.witness.before(self.shard, event)
        effects = stepped(self.shard, event, self.now)
        if self.is_checked:
            self.witness.after(self.shard)
        self._carry_out(effects)

    def _carry_out(self, effects: ShardEffects) -> None:
        self.is_lost = self.is_lost or effects.unloaded
        self._first = effects.append
        deaf = {self.members[n].stream for n, is_deaf in enumerate(self.is_unseen) if is_deaf}
        effects.replies = [reply for reply in effects.replies if reply[0] not in deaf]
        effects.ended = [each for each in effects.ended if each[0] not in deaf]
        super()._carry_out(effects)

    def _take(self, stream: CallId) -> None:
        member = self.streams.get(stream)
        if member is None:
            return
        n = self.members.index(member)
        if self.is_unseen[n] or self.has_stopped[n]:
            self.shard.take(stream, self.now)
            return
        before = len(member.received)
        super()._take(stream)
        if len(member.received) > before:
            self.versions[n] = member.received[-1][1].version

    # --- At the end all is well ---

    def heal(self) -> None:
        """No faults any more: each partition is held soon, by a member that may work on it.

        Raises:
            InvariantViolated: some partition is not.
        """
        self.faults = 0
        self.is_checked = True
        until_ms = self.now + HEALED_MS
        if self.is_lost:
            self._begin_anew()
        while self.now < until_ms:
            while self.held:
                self._settle("written")
            for n, member in enumerate(self.members):
                self._behave(n, member)
            while self.held:
                self._settle("written")
            next_ms = self.now + 1_000
            while self.due is not None and self.due <= next_ms:
                self.now = max(self.now, self.due)
                self._step(Tick())
                while self.held:
                    self._settle("written")
            self.now = next_ms
        group = self.shard.machine.groups.get(GROUP)
        if not isinstance(group, SessionGroup):
            raise InvariantViolated("there is no group")
        held = {
            partition
            for m in self.members
            for partition in m.active
            if m.clock.works_on(partition, self.now)
        }
        declared = {("t", p) for p in range(group.declared().get("t", 0))}
        if held != declared:
            raise InvariantViolated(f"after {HEALED_MS} ms nobody works on {declared - held}")
        if self.state != "Stable":
            raise InvariantViolated(f"after {HEALED_MS} ms the group is {self.state}")

    def _behave(self, n: int, member: ScenarioMember) -> None:
        if self.is_unseen[n] and member.stream:
            self._cut(n)
        if not member.stream:
            self._attach(n)
            return
        if member.reply is None:
            return
        # A fresh whole state, which it asks for, lets go on what its own clock has suspended.
        is_suspended = not all(
            member.clock.works_on(partition, self.now) for partition in member.active
        )
        member.beat(applied=self.versions[n], held=member.held, whole=is_suspended)
        for partition, order in sorted(member.orders.items()):
            if order.order is Order.WARM:
                member.ack(partition, "ready")
            elif order.order is not Order.ACTIVE:
                member.ack(partition, "released")


def _in_short(record: Record) -> str:
    if isinstance(record, SessionMemberStored):
        ends = " evicted" * record.evicted + " leaves" * record.leaves
        return f"{record.member_id} is a member{ends}"
    if isinstance(record, PolicyStored):
        return "the policy"
    return str(record)


_COUNTERS = ("number", "stream_number", "mailbox", "last_told")


def _facts_of(group: Any) -> Any:
    """A group without the counters that `_lead_of` compares."""
    if not isinstance(group, SessionGroup):
        return type(group).__name__
    found = {}
    for name in {name for base in type(group).__mro__ for name in getattr(base, "__slots__", ())}:
        if name not in ("members", "waiting", "journal", "state_changed_at_ms", "offsets"):
            found[name] = getattr(group, name, None)
    for table in ("members", "waiting"):
        found[table] = {
            key: [
                (name, getattr(member, name))
                for name in type(member).__slots__
                if name not in _COUNTERS
            ]
            + [(member.mailbox.dirty, member.mailbox.whole, member.mailbox.attached)]
            for key, member in getattr(group, table).items()
        }
    return found


_ACTS: dict[str, Callable[..., None]] = {
    "append": SessionSpace._settle,
    "time": SessionSpace._pass_time,
    "restart": SessionSpace._begin_anew,
    "attach": SessionSpace._attach,
    "attach unseen": SessionSpace._attach_unheard,
    "beat": SessionSpace._beat,
    "beat with held": SessionSpace._beat_with_held,
    "released": lambda self, n, partition: self.members[n].ack(partition, "released"),
    "ready": lambda self, n, partition: self.members[n].ack(partition, "ready"),
    "refused": lambda self, n, partition: self.members[n].ack(partition, "refused"),
    "leave": SessionSpace._leave,
    "cut": SessionSpace._cut,
    "crash": SessionSpace._crash,
    "deaf": SessionSpace._deafen,
}
