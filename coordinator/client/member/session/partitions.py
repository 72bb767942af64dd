"""Partitions of a session member: until when it may work on each, and how orders change them.

A partition at the member:

    ACTIVE ──DRAIN──► DRAINING ──released──► (acknowledged)
      └──── LOST, absent, refused, deadline ───► LOST ──released──► (acknowledged)

What it was ordered to do and has done it says again whenever the coordinator still asks for it: no
lost message is a lost acknowledgement.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from coordinator.assignors import TopicPartition
from coordinator.client.member.session.changes import (
    NO_OFFSET,
    Change,
    Draining,
    Granted,
    Lost,
    Resumed,
    Suspended,
    Warming,
)
from coordinator.client.member.session.leases import FOREVER_MS, Lease
from coordinator.client.member.session.orders import Ordered, held_topics
from coordinator.v1 import session_pb2 as pb


class Holding(Enum):
    """State of one partition at the member."""

    ACTIVE = "active"
    DRAINING = "draining"
    LOST = "lost"
    """It is to be released locally, and the coordinator told so."""


@dataclass(slots=True)
class Held:
    """A partition that the member has not released."""

    token: int
    state: Holding
    handoff_id: int = 0
    deadline_ms: int | None = None
    is_suspended: bool = False
    is_paused: bool = False


@dataclass(slots=True)
class Preparation:
    """A partition that the member prepares for."""

    handoff_id: int
    is_ready: bool = False


class Partitions:
    """Partitions that one member holds, or prepares for.

    Args:
        changes: what the owner is told is added to it.
        say: has an acknowledgement sent.
    """

    def __init__(
        self,
        lease: Lease,
        changes: deque[Change],
        say: Callable[[pb.SessionAck.Partition], None],
    ) -> None:
        self._lease, self._changes, self._say = lease, changes, say
        self.held: dict[TopicPartition, Held] = {}
        self.draining: set[TopicPartition] = set()
        """Partitions of `held` in state DRAINING."""
        self.warming: dict[TopicPartition, Preparation] = {}
        self.has_left = False
        """True once the owner has said that the member has stopped."""
        self.has_changed = True
        """True if the held set has not been told to the coordinator since it changed."""
        self._done: dict[TopicPartition, pb.SessionAck.Partition] = {}
        """The last acknowledgement of each partition that is not held."""
        self._due_ms: int | None = None
        """Time before which nothing is to be suspended or lost, so that inputs that concern the
        stream alone, or nothing here (commits), do not look at each partition; None: not known."""

    # --- What may be done with each, by one comparison; from any thread ---

    def is_valid(self, partition: TopicPartition, token: int, now_ms: int) -> bool:
        """True if effects of a partition may leave the process."""
        return now_ms < self.ends_ms(partition, token)

    def ends_ms(self, partition: TopicPartition, token: int) -> int:
        """Time from which no effect of a holding may leave the process; 0: now."""
        held = self.held.get(partition)
        if held is None or held.token != token or held.state is Holding.LOST or held.is_suspended:
            return 0
        if self.has_left:
            return 0  # Another member may be given it from the coordinator's next step on.
        ends_ms = self._lease.ends_ms(partition)
        return ends_ms if held.deadline_ms is None else min(ends_ms, held.deadline_ms)

    def takes_work(self, partition: TopicPartition, token: int, now_ms: int) -> bool:
        """True if new work of a partition may be begun."""
        held = self.held.get(partition)
        return (
            held is not None
            and held.state is Holding.ACTIVE
            and self.may_begin(partition, token, now_ms)
        )

    def may_begin(self, partition: TopicPartition, token: int, now_ms: int) -> bool:
        """True if work of a partition may be begun, be it to finish it: its lease is not in doubt,
        and it is not paused."""
        held = self.held.get(partition)
        return (
            held is not None
            and not held.is_paused
            and self.is_valid(partition, token, now_ms)
            and self._lease.takes_work(partition, now_ms)
        )

    # --- Time ---

    def first_end_ms(self) -> int:
        """Time at which the first partition is to be suspended or lost, or an earlier one."""
        if self._due_ms is None:
            ends = [
                self._lease.ends_ms(partition)
                for partition, held in self.held.items()
                if held.state is not Holding.LOST and not held.is_suspended
            ]
            deadlines = (self.held[partition].deadline_ms for partition in self.draining)
            ends += [at for at in deadlines if at is not None]
            self._due_ms = min(ends, default=FOREVER_MS)
        return self._due_ms

    def turn(self, now_ms: int) -> None:
        """Let time pass: suspend what is not valid any more; a drain that took too long is lost."""
        if now_ms < self.first_end_ms():
            return
        self._due_ms = None
        for partition, held in self.held.items():
            if held.state is Holding.LOST:
                continue
            if held.deadline_ms is not None and now_ms >= held.deadline_ms:
                self._lose(partition, "it was not released before the deadline of its drain")
            elif not held.is_suspended and not self._lease.is_valid(partition, now_ms):
                held.is_suspended = True
                self._changes.append(Suspended(partition, held.token))

    def look_anew(self) -> None:
        """The lease has changed, or what is held: something may end earlier."""
        self._due_ms = None

    # --- The coordinator ---

    def claims(self) -> list[pb.HeldTopic]:
        """The held set."""
        return held_topics({partition: held.token for partition, held in self.held.items()})

    def keep(self, named: Collection[TopicPartition]) -> None:
        """Lose and drop what a whole state does not name."""
        for partition in [each for each in self.held if each not in named]:
            self._lose(partition, "another member may have it")
        for partition in [each for each in self.warming if each not in named]:
            self._drop(partition)

    def carry_out(self, orders: Iterable[Ordered], now_ms: int, *, is_fresh: bool) -> None:
        """Carry out what the coordinator wants.

        Args:
            is_fresh: it is a whole state, and answers what was sent not long ago.
        """
        for each in orders:
            match each.order:
                case pb.Wanted.ACTIVE:
                    self._activate(each, is_fresh=is_fresh)
                case pb.Wanted.WARM:
                    self._warm(each)
                case pb.Wanted.DRAIN:
                    self._drain(each, now_ms, is_fresh=is_fresh)
                case pb.Wanted.LOST:
                    self._order_lost(each)

    def lose_all(self, reason: str) -> None:
        """Everything is lost."""
        for partition in self.held:
            self._lose(partition, reason)
        for partition in list(self.warming):
            self._drop(partition)

    # --- The owner ---

    def ready(self, partition: TopicPartition, handoff_id: int) -> None:
        """The owner has prepared for a partition, as it was told with this hand-off."""
        warm = self.warming.get(partition)
        if warm is not None and warm.handoff_id == handoff_id and not warm.is_ready:
            warm.is_ready = True
            self._say_ready(partition, warm)

    def released(
        self,
        partition: TopicPartition,
        token: int,
        position: int = NO_OFFSET,
        refused: str = "",
    ) -> None:
        """The owner has finished with a holding: its last commit is answered.

        Args:
            refused: why it will not have it; empty: it would.
        """
        held = self.held.get(partition)
        if held is not None and held.token == token:
            self._acknowledge(
                partition, pb.SessionAck.REFUSED if refused else pb.SessionAck.RELEASED,
                token=token, handoff_id=held.handoff_id, position=position, reason=refused,
            )  # fmt: skip

    def refuse(self, partition: TopicPartition, handoff_id: int, reason: str) -> None:
        """The owner will not prepare for a partition, as it was told with this hand-off."""
        warm = self.warming.get(partition)
        if warm is not None and warm.handoff_id == handoff_id:
            del self.warming[partition]
            kind = pb.SessionAck.REFUSED
            self._acknowledge(partition, kind, handoff_id=handoff_id, reason=reason)

    # --- Inside: orders ---

    def _activate(self, each: Ordered, *, is_fresh: bool) -> None:
        partition = each.partition
        held = self.held.get(partition)
        if held is not None and held.token == each.token:
            held.is_paused = each.paused
            self._resume(partition, held, is_fresh=is_fresh)
            return
        if self._repeats(partition, each.token):
            return
        if held is not None:
            self._lose(partition, "it was granted anew")
        self.warming.pop(partition, None)
        self._done.pop(partition, None)
        self._lease.forget(partition)
        self.held[partition] = Held(each.token, Holding.ACTIVE, is_paused=each.paused)
        self.has_changed = True
        self._changes.append(Granted(partition, each.token, each.offset, each.paused))

    def _resume(self, partition: TopicPartition, held: Held, *, is_fresh: bool) -> None:
        """A whole state that is fresh names the token: a suspended partition goes on."""
        if held.state is Holding.LOST or not held.is_suspended or partition in self._lease.frozen:
            return
        if is_fresh:
            held.is_suspended = False
            self._changes.append(Resumed(partition, held.token))

    def _warm(self, each: Ordered) -> None:
        partition = each.partition
        warm = self.warming.get(partition)
        if warm is not None and warm.handoff_id == each.handoff_id:
            if warm.is_ready:
                self._say_ready(partition, warm)
            return
        done = self._done.get(partition)
        if done is not None and done.handoff_id == each.handoff_id and not done.token:
            self._say(done)
            return
        if warm is not None:
            self._drop(partition)
        self.warming[partition] = Preparation(each.handoff_id)
        self._changes.append(Warming(partition, each.handoff_id, each.offset, each.position))

    def _drain(self, each: Ordered, now_ms: int, *, is_fresh: bool) -> None:
        partition = each.partition
        held = self.held.get(partition)
        if held is None or held.token != each.token:
            self._say_not_held(each)
            return
        self._resume(partition, held, is_fresh=is_fresh)
        if held.state is Holding.ACTIVE:
            # A deadline once told is never moved.
            held.state = Holding.DRAINING
            self.draining.add(partition)
            held.deadline_ms = now_ms + each.remaining_ms if each.remaining_ms else None
            self._changes.append(Draining(partition, each.token, held.deadline_ms))
        held.handoff_id = each.handoff_id

    def _order_lost(self, each: Ordered) -> None:
        partition = each.partition
        held = self.held.get(partition)
        if held is not None and each.token in (0, held.token):
            self._lose(partition, "the coordinator has taken it away")
        elif each.token:
            self._say_not_held(each)
        if partition in self.warming:
            self._drop(partition)

    def _say_not_held(self, each: Ordered) -> None:
        """Release a token that is not held: released before, or its grant has never arrived."""
        if not self._repeats(each.partition, each.token):
            kind, handoff_id = pb.SessionAck.RELEASED, each.handoff_id
            self._say(_ack(each.partition, kind, token=each.token, handoff_id=handoff_id))

    def _repeats(self, partition: TopicPartition, token: int) -> bool:
        """Repeat the ack of an order that has been carried out; True if there is one."""
        done = self._done.get(partition)
        if done is None or not token or done.token != token:
            return False
        self._say(done)
        return True

    def _lose(self, partition: TopicPartition, reason: str) -> None:
        """A partition is lost: the owner releases it locally, and the coordinator is told then."""
        held = self.held[partition]
        if held.state is not Holding.LOST:
            held.state = Holding.LOST
            self.draining.discard(partition)
            self._changes.append(Lost(partition, held.token, reason))

    def _drop(self, partition: TopicPartition) -> None:
        del self.warming[partition]
        self._changes.append(Lost(partition, 0, "it goes to another member", was_warming=True))

    # --- Inside: acknowledgements ---

    def _say_ready(self, partition: TopicPartition, warm: Preparation) -> None:
        self._say(_ack(partition, pb.SessionAck.READY, handoff_id=warm.handoff_id))

    def _acknowledge(
        self, partition: TopicPartition, kind: pb.SessionAck.Kind.ValueType, **fields: Any
    ) -> None:
        """Give a partition up, and say so; it is said again if the coordinator has missed it.

        Args:
            fields: as those of `_ack`.
        """
        ack = self._done[partition] = _ack(partition, kind, **fields)
        if self.held.pop(partition, None) is not None:
            self.draining.discard(partition)
            self._lease.forget(partition)
            self.has_changed = True
        self._say(ack)


def _ack(
    partition: TopicPartition,
    kind: pb.SessionAck.Kind.ValueType,
    *,
    token: int = 0,
    handoff_id: int = 0,
    position: int = NO_OFFSET,
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
    if position != NO_OFFSET:
        ack.position = position
    return ack
