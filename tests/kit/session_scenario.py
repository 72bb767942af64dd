"""Session scenarios: members that heartbeat in time and answer orders as told, on virtual time.

A `SessionScenario` steps a real shard. Appends are acknowledged at once, unless they are held;
messages take no time. Times are milliseconds since the start.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from coordinator.core.config import GroupConfig
from coordinator.core.pauses import Pause
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.plan import allocator
from coordinator.core.values import session_messages as q
from coordinator.core.values.commands import PlanComputed, PlanDue
from coordinator.core.values.effects import ComputePlan
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.events import Event
from coordinator.core.values.ids import CallId
from coordinator.core.values.plans import MoveReason, Unplaced
from coordinator.core.values.policy import Policy
from coordinator.core.values.records import PartitionsGranted, PartitionSwitched, Record
from coordinator.core.values.replies import CommitReply, Reply
from coordinator.core.values.requests import CommitOffsets, PartitionCommit
from coordinator.core.values.session_messages import Order, OrderedPartition, Orders, ToMember
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
from tests.kit.own_clock import OwnClock
from tests.kit.steps import restored, stepped
from tests.simulation.worlds.witness import Witness

GROUP = "g"
NO_STREAM = CallId(0)
POLICY = Policy(join_quiet_ms=0, initial_delay_ms=0)


@dataclass
class ScenarioMember:
    """A member as a scenario plays it: its stream, and what it was told."""

    scenario: SessionScenario
    name: str
    topics: dict[str, int]
    incarnation: str
    stream: CallId = NO_STREAM
    stream_number: int = 0
    number: int = 0
    reply: q.AttachReply | None = None
    end: q.StreamEnd | None = None
    acks: list[Any] = field(default_factory=list)
    received: list[tuple[int, Orders]] = field(default_factory=list)
    parts: list[Orders] = field(default_factory=list)
    orders: dict[tuple[str, int], OrderedPartition] = field(default_factory=dict)
    given_up: set[tuple[tuple[str, int], int]] = field(default_factory=set)
    beats: bool = True
    releases: bool = False
    clock: OwnClock = field(default_factory=OwnClock)

    @property
    def member_id(self) -> str:
        assert self.reply is not None
        return self.reply.member_id

    @property
    def active(self) -> list[tuple[str, int]]:
        return sorted(p for p, order in self.orders.items() if order.order is Order.ACTIVE)

    def attach(self, **fields: Any) -> ScenarioMember:
        self.stream_number += 1
        self.stream = self.scenario.new_call()
        self.reply = self.end = None
        fields = {"started_at_ms": 0, "topics": tuple(self.topics.items()), **fields}
        if "held" not in fields:
            fields["held"] = self.held
        number = fields.pop("stream_number", self.stream_number)
        self.scenario.streams[self.stream] = self
        self.clock.sends(0, self.scenario.now)
        self.scenario.send(
            q.Attach(
                call_id=self.stream,
                group_id=GROUP,
                incarnation=self.incarnation,
                name=self.name,
                stream_number=number,
                wishes=self.scenario.policy,
                **fields,
            )
        )
        return self

    @property
    def held(self) -> tuple[tuple[str, int, int], ...]:
        """Its claims: without what it has given up, whether or not that was heard."""
        return tuple(
            (*partition, order.token)
            for partition, order in sorted(self.orders.items())
            if order.token and (partition, order.token) not in self.given_up
        )

    def beat(self, **fields: Any) -> None:
        self.number += 1
        self.clock.sends(self.number, self.scenario.now)
        self.scenario.send(
            q.SessionHeartbeat(stream_id=self.stream, group_id=GROUP, number=self.number, **fields)
        )

    def ack(self, partition: tuple[str, int], kind: str = "released", **fields: Any) -> None:
        order = self.orders.get(partition)
        if order is not None:
            fields.setdefault("token", order.token)
            fields.setdefault("handoff_id", order.handoff_id)
        each = q.PartitionAck(*partition, q.AckKind(kind), **fields)
        if kind != "ready":
            self.clock.stops((partition,))
            self.given_up.add((partition, fields.get("token", 0)))
        self.scenario.send(q.SessionAck(stream_id=self.stream, group_id=GROUP, partitions=(each,)))

    def leave(self, kind: str, within_ms: int = 0) -> None:
        self.beats = kind == "drain"
        if not self.beats:
            self.clock.stops_all()
        self.scenario.send(
            q.SessionLeave(
                stream_id=self.stream,
                group_id=GROUP,
                kind=q.LeaveKind(kind),
                within_ms=within_ms,
            )
        )

    def cut(self) -> None:
        self.beats = False
        self.scenario.send(q.StreamEnded(stream_id=self.stream, group_id=GROUP))

    def commit(
        self, offset: int, *topic_partitions: tuple[str, int], token: int | None = None
    ) -> Any:
        partitions = tuple(
            PartitionCommit(
                topic,
                partition,
                offset,
                token=token
                if token is not None
                else getattr(self.orders.get((topic, partition)), "token", 0),
            )
            for topic, partition in topic_partitions
        )
        call = self.scenario.new_call()
        self.scenario.send(
            CommitOffsets(
                call_id=call, group_id=GROUP, partitions=partitions, member_id=self.member_id
            )
        )
        reply = self.scenario.replies.get(call)
        assert isinstance(reply, CommitReply | type(None))
        return None if reply is None else [result.error for result in reply.results]

    def receive(self, now_ms: int, orders: Orders) -> None:
        if self.parts and self.parts[0].version != orders.version:
            self.parts.clear()
        self.parts.append(orders)
        if orders.is_part:
            return
        partitions = tuple(each for part in self.parts for each in part.partitions)
        orders = replace(self.parts[0], partitions=partitions, is_part=False)
        self.parts.clear()
        self.received.append((now_ms, orders))
        if orders.based_on < 0:
            self.orders.clear()
        for each in orders.partitions:
            partition = each.topic, each.partition
            if each.order is Order.LOST and not each.token:
                self.orders.pop(partition, None)
            else:
                self.orders[partition] = each
        self.clock.hears(orders, self.orders)


class SessionScenario:
    """A shard, its members and its log."""

    def __init__(self, policy: Policy = POLICY, *, now_ms: int = 0, **settings: Any) -> None:
        self.policy = policy
        self.config = GroupConfig(**settings)
        self.now = now_ms
        self.ids = CountingIds()  # They go on after a restart, as random ones would.
        self.shard = self._new_shard()
        self.members: list[ScenarioMember] = []
        self.streams: dict[CallId, ScenarioMember] = {}
        self.replies: dict[CallId, Reply] = {}
        self.records: list[Record] = []
        self.witness = Witness(self.config)
        self.held: list[Append] | None = None
        self.is_away = self.is_full = False  # The log takes nothing: for now, or for good.
        self.due: int | None = None
        self.pauses: tuple[Pause, ...] = ()
        self.compute_ms = 0  # Time that a plan takes which is made outside of the shard.
        self.computing: list[tuple[int, ComputePlan]] = []
        self.events: list[Event] = []
        self.deaf: set[CallId] = set()  # Streams whose transport takes nothing.
        self._calls = itertools.count(1)
        self._carry_out(restored(self.shard, now_ms, sequence=0, next_offset=0))

    def _new_shard(self) -> Shard:
        return Shard(self.config, self.ids, PAYLOADS, now_ms=self.now, wheel_size=20)

    @property
    def group(self) -> SessionGroup:
        group = self.shard.machine.groups[GROUP]
        assert isinstance(group, SessionGroup)
        return group

    @property
    def state(self) -> str:
        return self.group.state.value

    # --- What the group has planned, and told ---

    @property
    def planned_at_ms(self) -> int:
        """Time of the last plan."""
        return self.group.planning.planned_at_ms

    @property
    def unplaced(self) -> Mapping[tuple[str, int], Unplaced]:
        """Free partitions that nobody could have by the last plan, and why."""
        return self.group.planning.unplaced

    @property
    def waiting_moves(self) -> Collection[tuple[str, int]]:
        """Partitions that the last plan moves, and whose hand-offs have not begun."""
        return self.group.planning.targets.keys()

    def version_of(self, member: ScenarioMember) -> int:
        """Version of the orders that the coordinator has for a member."""
        return self.group.members[member.member_id].mailbox.version

    def new_call(self) -> CallId:
        return CallId(next(self._calls))

    def member(self, name: str, topics: dict[str, int], incarnation: str = "") -> ScenarioMember:
        member = ScenarioMember(self, name, topics, incarnation or f"i-{name}")
        self.members.append(member)
        return member

    def ask_again(self) -> None:
        """End the back-offs of members that have refused a partition."""
        for partition in list(self.group.partition_states):
            self.group.partition_states[partition].refusals.by_name.clear()

    def move(self, partition: tuple[str, int], to: ScenarioMember) -> None:
        """Have a partition handed over, as a plan would."""
        self.group.planning.targets[partition] = to.member_id, MoveReason.PINNED
        self.send(PlanDue(GROUP))

    # --- Log ---

    def store(self, record: Record) -> None:
        """Have a record in the log that no request has written."""
        self.records.append(record)
        self.witness.acknowledged((record,), self.now)
        self.shard.machine.apply(record, self.now)

    def hold(self) -> None:
        """Acknowledge no append from now on."""
        self.held = []

    def release(self, *, failing: AppendFailure | None = None) -> None:
        held, self.held = self.held or [], None
        for append in held:
            self._append(append, failing)

    def refuse(self) -> None:
        """Refuse for good what is held, one by one, and hold what follows of it."""
        assert self.held
        while self.held:
            append, self.held = self.held[0], []
            is_alone = len(append.records) == 1
            self._append(append, AppendFailure.TOO_LARGE)
            if is_alone and not self.held:
                break

    def cut_and_refuse_the_last(self) -> None:
        """Have a log that takes only a half of what is held, and refuses the other for good."""
        assert self.held
        append, self.held = self.held[0], []
        self._append(append, AppendFailure.TOO_LARGE)
        first, self.held = self.held[0], []
        self._append(first)
        last, self.held = self.held[0], []
        self._append(last, AppendFailure.TOO_LARGE)

    def restart(self, raised: int = 0) -> None:
        """Kill the coordinator, and read the log again.

        Args:
            raised: what the log says that numbers are to be raised by, since commits are lost.
        """
        self.shard = self._new_shard()
        self.shard.replay(self.records, self.now)
        self.held = None
        for member in self.members:
            member.stream = NO_STREAM
        self.streams.clear()
        begun = restored(self.shard, self.now, sequence=1_000, next_offset=1_000, raised=raised)
        self._carry_out(begun)

    # --- Time ---

    def to(self, until_ms: int) -> None:
        """Let time pass: heartbeats in time, and everything that falls due."""
        while True:
            beats = [
                (self._next_beat(member), position)
                for position, member in enumerate(self.members)
                if member.beats and member.stream and _is_attached(member)
            ]
            ends = (at for at, _ in self.computing)
            due = [at for at in (self.due, *ends, *(at for at, _ in beats)) if at is not None]
            at = min(due, default=until_ms + 1)
            if at > until_ms:
                break
            self.now = max(self.now, at)
            for beat_at, position in beats:
                if beat_at <= self.now:
                    self._beats[position] = self.now
                    self.members[position].beat()
            self._compute()
            if self.due is not None and self.due <= self.now:
                self._step(Tick(self.pauses))
        self.now = until_ms

    @property
    def _beats(self) -> dict[int, int]:
        return self.__dict__.setdefault("beats_at", {})

    def _next_beat(self, member: ScenarioMember) -> int:
        assert member.reply is not None
        position = self.members.index(member)
        began = self._beats.setdefault(position, self.now)
        return began + member.reply.lease_ms // 4

    # --- Steps ---

    def send(self, command: Any) -> None:
        self._step(command)

    def _step(self, event: Any) -> None:
        self.witness.before(self.shard, event)
        effects = stepped(self.shard, event, self.now)
        self.witness.after(self.shard)
        self._carry_out(effects)

    def _carry_out(self, effects: ShardEffects) -> None:
        self.due = effects.next_deadline_ms
        self.events += effects.events
        self.computing += [(self.now + self.compute_ms, ask) for ask in effects.computes]
        for call, reply in effects.replies:
            self.replies[call] = reply
            self.witness.replied(call, reply)
            member = self.streams.get(call)
            if member is not None and isinstance(reply, q.AttachReply):
                self.witness.attached(GROUP, reply)
                member.reply = reply
                if reply.error is ErrorCode.NONE:
                    member.clock.attached(reply.lease_ms)
                    self._beats[self.members.index(member)] = self.now
                    assert reply.orders is not None
                    member.receive(self.now, reply.orders)
                    self._take(call)
                else:
                    member.stream = NO_STREAM
        for stream in effects.wakes:
            if stream not in self.deaf:
                self._take(stream)
        for stream, last in effects.ended:
            member = self.streams.pop(stream, None)
            if member is not None and member.reply is not None:
                self.witness.went_away(GROUP, member.member_id, last)
            if member is not None and member.stream == stream:
                member.end = last
                member.stream = NO_STREAM
        if self.computing and not self.compute_ms:
            self._compute()
        if effects.append is not None:
            if self.held is not None:
                self.held.append(effects.append)
            else:
                self._append(effects.append)

    def _compute(self) -> None:
        for at, ask in [plan for plan in self.computing if plan[0] <= self.now]:
            self.computing.remove((at, ask))
            try:
                done = PlanComputed(ask.group_id, ask.number, allocator.plan(ask.state))
            except ValueError as error:
                done = PlanComputed(ask.group_id, ask.number, None, str(error))
            self._step(done)

    def _append(self, append: Append, failing: AppendFailure | None = None) -> None:
        if failing is None and (self.is_away or self.is_full):
            failing = AppendFailure.UNAVAILABLE
        if failing is not None:
            self._step(AppendFailed(append.sequence, failing, self.is_full))
            return
        records = [decode(encode(record)) for record in append.records]
        self.records += records
        self._nobody_else_works_on(records)
        self.witness.acknowledged(records, self.now)
        self._step(Appended(append.sequence))

    def _nobody_else_works_on(self, records: list[Record]) -> None:
        """Check that no other member works on what is granted, by its own clock."""
        for partition, member_id in _grants(records):
            for other in self.members:
                if other.reply is None or other.member_id == member_id:
                    continue
                assert not other.clock.works_on(partition, self.now), (
                    f"at {self.now} {member_id} is granted {partition}; {other.name} works on it"
                )

    def _take(self, stream: CallId) -> None:
        member = self.streams.get(stream)
        if member is not None and member.reply is None:
            return  # A transport tells nothing before the answer to the Attach.
        while member is not None and (said := self.shard.take(stream, self.now)) is not None:
            self._told(member, said)

    def _told(self, member: ScenarioMember, said: ToMember) -> None:
        self.witness.told(GROUP, member.member_id, said)
        if said.ack is not None:
            member.acks.append((self.now, said.ack))
            member.clock.acknowledged(said.ack, self.now)
        if said.orders is not None:
            member.receive(self.now, said.orders)
            if member.releases:
                self._release_drained(member)

    def _release_drained(self, member: ScenarioMember) -> None:
        for partition, order in list(member.orders.items()):
            if order.order is Order.DRAIN or (order.order is Order.LOST and order.token):
                member.ack(partition)


def _grants(records: list[Record]) -> Iterator[tuple[tuple[str, int], str]]:
    for record in records:
        match record:
            case PartitionsGranted():
                for grant in record.grants:
                    for first, last in grant.partitions:
                        for partition in range(first, last + 1):
                            yield (grant.topic, partition), grant.member_id
            case PartitionSwitched() if record.member_id:
                yield (record.topic, record.partition), record.member_id


def _is_attached(member: ScenarioMember) -> bool:
    return member.reply is not None and member.reply.error is ErrorCode.NONE


def g1() -> tuple[SessionScenario, ScenarioMember]:
    scenario = SessionScenario()
    a = scenario.member("w-a", {"t": 4}).attach()
    scenario.to(100)
    return scenario, a


def g2(policy: Policy = POLICY) -> tuple[SessionScenario, ScenarioMember, ScenarioMember]:
    """Two members; the first one returned has two partitions."""
    scenario = SessionScenario(policy)
    first, second = (scenario.member(name, {"t": 3}).attach() for name in ("w-a", "w-b"))
    scenario.to(100)
    if len(first.active) == 1:
        first, second = second, first
    return scenario, first, second


def with_policy(**fields: Any) -> Policy:
    return replace(POLICY, **fields)


Step = Callable[[SessionScenario], None]


def handing_over(
    policy: Policy = POLICY,
) -> tuple[SessionScenario, ScenarioMember, ScenarioMember, tuple[str, int]]:
    """Two members; at 5,100 the one with two partitions begins to hand one over to the other."""
    scenario, a, b = g2(policy)
    scenario.to(5_100)
    partition = a.active[0]
    scenario.move(partition, b)
    return scenario, a, b, partition
