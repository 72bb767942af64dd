"""Partitions of a session member: until when it may work on each, and how orders change them.

A partition at the member:

    ACTIVE ──DRAIN──► DRAINING ──released──► (acknowledged)
      └──── LOST, absent, refused, deadline ───► LOST ──released──► (acknowledged)

What it was ordered to do and has done it says again whenever the coordinator still asks for it: no
lost message is a lost acknowledgement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from coordinator.assignors import TopicPartition
from coordinator.client.member.events import (
    Granted,
    HoldingEvent,
    Lost,
    Resumed,
    Revoking,
    Suspended,
    Warming,
)
from coordinator.client.member.ledger import FOREVER_MS, UNKNOWN_OFFSET, Holding, Ledger
from coordinator.client.member.part import HoldingRules
from coordinator.client.member.session.leases import Lease
from coordinator.client.member.session.orders import Ordered, held_topics
from coordinator.v1 import session_pb2 as pb


class HoldingState(Enum):
    """State of one partition at the member."""

    ACTIVE = "active"
    DRAINING = "draining"
    LOST = "lost"
    """It is to be released locally, and the coordinator notified."""


@dataclass(slots=True)
class Held:
    """A partition that the member has not released."""

    holding: Holding
    state: HoldingState
    handoff_id: int = 0
    deadline_ms: int | None = None
    is_suspended: bool = False


@dataclass(slots=True)
class Preparation:
    """A partition that the member prepares for."""

    holding: Holding
    is_ready: bool = False


class Partitions(HoldingRules):
    """Partitions that one member holds, or prepares for.

    Args:
        ledger: of the member; holdings begin and end here.
        say: has an acknowledgement sent.
    """

    def __init__(
        self, lease: Lease, ledger: Ledger, say: Callable[[pb.SessionAck.Partition], None]
    ) -> None:
        self._lease, self._ledger, self._say = lease, ledger, say
        self._pending: dict[tuple[type[HoldingEvent], Any], list[Holding]] = {}
        """Events for the owner, by kind and other fields: their holdings."""
        self.held: dict[TopicPartition, Held] = {}
        self.draining: set[TopicPartition] = set()
        """Partitions of `held` in state DRAINING."""
        self.warming: dict[TopicPartition, Preparation] = {}
        self.has_left = False
        """True once the owner has said that the member has stopped."""
        self.has_changed = True
        """True if the held set has not been sent to the coordinator since it changed."""
        self._done: dict[TopicPartition, pb.SessionAck.Partition] = {}
        """The last acknowledgement of each partition that is not held."""
        self._due_ms: int | None = None
        """Time before which nothing is to be suspended or lost, so that inputs that concern the
        stream alone, or nothing here (commits), do not look at each partition; None: not known."""

    # --- What may be done with each, by one comparison; from any thread ---

    def ends_ms(self, holding: Holding) -> int:
        """Time from which no effect of a holding may leave the process; 0: now."""
        held = self._held_as(holding)
        if held is None or held.state is HoldingState.LOST or held.is_suspended:
            return 0
        if self.has_left:
            return 0  # Another member may be given it from the coordinator's next step on.
        ends_ms = self._lease.ends_ms(holding.partition)
        return ends_ms if held.deadline_ms is None else min(ends_ms, held.deadline_ms)

    def takes_work(self, holding: Holding, now_ms: int) -> bool:
        """True if new work of a holding may be begun."""
        held = self._held_as(holding)
        is_active = held is not None and held.state is HoldingState.ACTIVE
        return is_active and self.may_begin(holding, now_ms)

    def may_begin(self, holding: Holding, now_ms: int) -> bool:
        """True if work of a holding may be begun, be it to finish it: its lease is not in
        doubt."""
        held = self._held_as(holding)
        return (
            held is not None
            and now_ms < self.ends_ms(holding)
            and self._lease.takes_work(holding.partition, now_ms)
        )

    def deadline_of(self, holding: Holding) -> int | None:
        """Deadline of a holding that drains, `FOREVER_MS` if there is none; None: it does not."""
        held = self._held_as(holding)
        if held is None or held.state is not HoldingState.DRAINING:
            return None
        return FOREVER_MS if held.deadline_ms is None else held.deadline_ms

    def warmed(self) -> list[Holding]:
        return [warm.holding for warm in self.warming.values()]

    def _held_as(self, holding: Holding) -> Held | None:
        held = self.held.get(holding.partition)
        return held if held is not None and held.holding is holding else None

    # --- Time ---

    def first_end_ms(self) -> int:
        """Time at which the first partition is to be suspended or lost, or an earlier one."""
        if self._due_ms is None:
            ends = [
                self._lease.ends_ms(partition)
                for partition, held in self.held.items()
                if held.state is not HoldingState.LOST and not held.is_suspended
            ]
            deadlines = (self.held[partition].deadline_ms for partition in self.draining)
            ends += [at for at in deadlines if at is not None]
            self._due_ms = min(ends, default=FOREVER_MS)
        return self._due_ms

    def pass_time(self, now_ms: int) -> None:
        """Let time pass: suspend what is not valid any more; a drain that took too long is lost."""
        if now_ms < self.first_end_ms():
            return
        self._due_ms = None
        for partition, held in self.held.items():
            if held.state is HoldingState.LOST:
                continue
            if held.deadline_ms is not None and now_ms >= held.deadline_ms:
                self._lose(partition, "it was not released before the deadline of its drain")
            elif not held.is_suspended and not self._lease.is_valid(partition, now_ms):
                held.is_suspended = True
                self._note(Suspended, held.holding)

    def recheck(self) -> None:
        """The lease has changed, or what is held: something may end earlier."""
        self._due_ms = None

    # --- Events for the owner ---

    def drain_events(self) -> list[HoldingEvent]:
        """Events since the last call: one for all that has happened in the same way. What was lost
        comes first, since it may have been granted anew."""
        pending, self._pending = self._pending, {}
        events = [
            kind(tuple(sorted(partitions, key=_by_partition)), *fields)
            for (kind, fields), partitions in pending.items()
        ]
        return sorted(events, key=lambda event: not isinstance(event, Lost))

    def _note(self, kind: type[HoldingEvent], holding: Holding, *fields: object) -> None:
        """Notify the owner. `fields`: those of the event beside its holdings."""
        self._pending.setdefault((kind, fields), []).append(holding)

    # --- The coordinator ---

    def claims(self) -> list[pb.HeldTopic]:
        return held_topics({partition: held.holding.token for partition, held in self.held.items()})

    def keep(self, named: Collection[TopicPartition]) -> None:
        """Lose and drop what a whole state does not name."""
        for partition in [
            held_partition for held_partition in self.held if held_partition not in named
        ]:
            self._lose(partition, "another member may have it")
        for partition in [warmed for warmed in self.warming if warmed not in named]:
            self._drop(partition)

    def carry_out(self, orders: Iterable[Ordered], now_ms: int, *, is_fresh: bool) -> None:
        """Carry out what the coordinator wants.

        Args:
            is_fresh: it is a whole state, and answers what was sent not long ago.
        """
        for order in orders:
            match order.order:
                case pb.Orders.ACTIVE:
                    self._activate(order, is_fresh=is_fresh)
                case pb.Orders.WARM:
                    self._warm(order)
                case pb.Orders.DRAIN:
                    self._drain(order, now_ms, is_fresh=is_fresh)
                case pb.Orders.LOST:
                    self._order_lost(order)

    def lose_all(self, reason: str) -> None:
        """Everything is lost."""
        for partition in self.held:
            self._lose(partition, reason)
        for partition in list(self.warming):
            self._drop(partition)

    # --- The owner ---

    def ready(self, holding: Holding) -> None:
        """The owner has prepared for a partition, as it was asked to."""
        warm = self.warming.get(holding.partition)
        if warm is not None and warm.holding is holding and not warm.is_ready:
            warm.is_ready = True
            self._say_ready(holding)

    def holds(self, holding: Holding) -> bool:
        """True until a holding is released, though it may be lost."""
        return self._held_as(holding) is not None

    def released(self, holding: Holding, position: int = UNKNOWN_OFFSET, refused: str = "") -> None:
        """The owner has finished with a holding: its last commit is answered.

        Args:
            refused: why it will not have it; empty: it would.
        """
        held = self._held_as(holding)
        if held is not None:
            self._ledger.end((holding.partition,), "it was released")
            self._acknowledge(
                holding, pb.SessionAck.REFUSED if refused else pb.SessionAck.RELEASED,
                handoff_id=held.handoff_id, position=position, reason=refused,
            )  # fmt: skip

    def refuse(self, holding: Holding, reason: str) -> None:
        """The owner will not prepare for a partition, as it was asked to."""
        warm = self.warming.get(holding.partition)
        if warm is not None and warm.holding is holding:
            del self.warming[holding.partition]
            kind = pb.SessionAck.REFUSED
            self._acknowledge(holding, kind, handoff_id=holding.handoff_id, reason=reason)

    # --- Inside: orders ---

    def _activate(self, ordered: Ordered, *, is_fresh: bool) -> None:
        partition = ordered.partition
        held = self.held.get(partition)
        if held is not None and held.holding.token == ordered.token:
            self._resume(partition, held, is_fresh=is_fresh)
            return
        if self._repeats(partition, ordered.token):
            return
        if held is not None:
            self._lose(partition, "it was granted anew")
        self.warming.pop(partition, None)
        self._done.pop(partition, None)
        self._lease.forget(partition)
        holding = Holding(partition, token=ordered.token, offset=ordered.offset)
        self.held[partition] = Held(holding, HoldingState.ACTIVE)
        self._ledger.begin((holding,))
        self.has_changed = True
        self._note(Granted, holding)

    def _resume(self, partition: TopicPartition, held: Held, *, is_fresh: bool) -> None:
        """A whole state that is fresh names the token: a suspended partition goes on."""
        if (
            held.state is HoldingState.LOST
            or not held.is_suspended
            or partition in self._lease.frozen
        ):
            return
        if is_fresh:
            held.is_suspended = False
            self._note(Resumed, held.holding)

    def _warm(self, ordered: Ordered) -> None:
        partition = ordered.partition
        warm = self.warming.get(partition)
        if warm is not None and warm.holding.handoff_id == ordered.handoff_id:
            if warm.is_ready:
                self._say_ready(warm.holding)
            return
        done = self._done.get(partition)
        if done is not None and done.handoff_id == ordered.handoff_id and not done.token:
            self._say(done)
            return
        if warm is not None:
            self._drop(partition)
        holding = Holding(
            partition,
            handoff_id=ordered.handoff_id,
            offset=ordered.offset,
            position=ordered.position,
        )
        self.warming[partition] = Preparation(holding)
        self._note(Warming, holding)

    def _drain(self, ordered: Ordered, now_ms: int, *, is_fresh: bool) -> None:
        partition = ordered.partition
        held = self.held.get(partition)
        if held is None or held.holding.token != ordered.token:
            self._say_not_held(ordered)
            return
        self._resume(partition, held, is_fresh=is_fresh)
        if held.state is HoldingState.ACTIVE:
            # A deadline once given is never moved.
            held.state = HoldingState.DRAINING
            self.draining.add(partition)
            held.deadline_ms = now_ms + ordered.remaining_ms if ordered.remaining_ms else None
            self._note(Revoking, held.holding, held.deadline_ms)
        held.handoff_id = ordered.handoff_id

    def _order_lost(self, ordered: Ordered) -> None:
        partition = ordered.partition
        held = self.held.get(partition)
        if held is not None and ordered.token in (0, held.holding.token):
            self._lose(partition, "the coordinator has taken it away")
        elif ordered.token:
            self._say_not_held(ordered)
        if partition in self.warming:
            self._drop(partition)

    def _say_not_held(self, ordered: Ordered) -> None:
        """Release a token that is not held: released before, or its grant has never arrived."""
        if not self._repeats(ordered.partition, ordered.token):
            kind, handoff_id = pb.SessionAck.RELEASED, ordered.handoff_id
            self._say(_ack(ordered.partition, kind, token=ordered.token, handoff_id=handoff_id))

    def _repeats(self, partition: TopicPartition, token: int) -> bool:
        """Repeat the ack of an order that has been carried out; True if there is one."""
        done = self._done.get(partition)
        if done is None or not token or done.token != token:
            return False
        self._say(done)
        return True

    def _lose(self, partition: TopicPartition, reason: str) -> None:
        """A partition is lost: the owner releases it locally; then the coordinator is notified."""
        held = self.held[partition]
        if held.state is not HoldingState.LOST:
            held.state = HoldingState.LOST
            self.draining.discard(partition)
            self._ledger.end((partition,), reason)
            self._note(Lost, held.holding, reason)

    def _drop(self, partition: TopicPartition) -> None:
        dropped = self.warming.pop(partition).holding
        self._note(Lost, dropped, "it goes to another member", True)

    # --- Inside: acknowledgements ---

    def _say_ready(self, holding: Holding) -> None:
        ready = pb.SessionAck.READY
        self._say(_ack(holding.partition, ready, handoff_id=holding.handoff_id))

    def _acknowledge(
        self, holding: Holding, kind: pb.SessionAck.Kind.ValueType, **fields: Any
    ) -> None:
        """Give a partition up, and say so; it is said again if the coordinator has missed it.

        Args:
            fields: as those of `_ack`.
        """
        partition = holding.partition
        ack = self._done[partition] = _ack(partition, kind, token=holding.token, **fields)
        if self._held_as(holding) is not None:
            del self.held[partition]
            self.draining.discard(partition)
            self._lease.forget(partition)
            self.has_changed = True
        self._say(ack)


def _by_partition(holding: Holding) -> TopicPartition:
    return holding.partition


def _ack(
    partition: TopicPartition,
    kind: pb.SessionAck.Kind.ValueType,
    *,
    token: int = 0,
    handoff_id: int = 0,
    position: int = UNKNOWN_OFFSET,
    reason: str = "",
) -> pb.SessionAck.Partition:
    ack = pb.SessionAck.Partition(
        topic=partition.topic,
        partition=partition.partition,
        kind=kind,
        token=token,
        handoff_id=handoff_id,
        reason=reason,
    )
    if position != UNKNOWN_OFFSET:
        ack.position = position
    return ack
