"""Witness of a shard's session groups: what is said and accepted, beside what the log has.

A witness keeps a table of groups of its own, to which it applies acknowledged records alone. It
asserts after every step that the shard has the same, that members were told nothing else, and that
no commit was accepted under a token that had ended. Each claim fails with an `InvariantViolated`.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.core.config import GroupConfig
from coordinator.core.group_table import GroupTable
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.invariants import TokenHistory
from coordinator.core.step import ShardContext
from coordinator.core.values import session_messages as q
from coordinator.core.values.errors import ErrorCode, InvariantViolated
from coordinator.core.values.ids import CallId, TopicPartition
from coordinator.core.values.records import Phase, Record
from coordinator.core.values.replies import CommitReply
from coordinator.core.values.requests import CommitOffsets
from coordinator.core.values.session_messages import (
    HeartbeatAck,
    Order,
    OrderedPartition,
    Orders,
    ToMember,
)
from coordinator.runtime.payloads import PAYLOADS
from coordinator.shard.shard import Shard
from coordinator.testing.virtual import CountingIds


class Witness:
    """Follows one shard, over all its owners."""

    def __init__(self, config: GroupConfig) -> None:
        self.durable = GroupTable(ShardContext(config, CountingIds(), PAYLOADS))
        self._tokens = TokenHistory()
        self._commits: dict[CallId, dict[TopicPartition, str]] = {}
        """Commits on their way: why a partition of each may not be committed."""
        self._unsent: dict[tuple[str, str], tuple[int, set[TopicPartition]]] = {}
        """Whole states of which a part was told: their version, and what is left to tell."""

    # --- What goes in ---

    def acknowledged(self, records: Iterable[Record], now_ms: int) -> None:
        """The log has these records."""
        for record in records:
            self.durable.apply(record, now_ms)

    def before(self, shard: Shard, command: object) -> None:
        """A command is about to be handled."""
        if not isinstance(command, CommitOffsets) or not command.member_id:
            return
        group = shard.machine.groups.get(command.group_id)
        if isinstance(group, SessionGroup):
            self._commits[command.call_id] = {
                (partition.topic, partition.partition): _why_not(
                    group, command.member_id, partition
                )
                for partition in command.partitions
            }

    # --- What must hold ---

    def after(self, shard: Shard) -> None:
        """A step has been handled."""
        shard.check()
        if not shard.is_unloaded:
            self._tokens.follow(
                group for group in shard.machine.groups.values() if isinstance(group, SessionGroup)
            )
            own, log = _facts(shard.machine, self.durable), _facts(self.durable, shard.machine)
            _expect(own == log, f"the shard has {_but(own, log)}, the log {_but(log, own)}")
            floor = self.durable.numbers.last_token
            _expect(shard.machine.numbers.last_token >= floor, "a token may be given again")

    def replied(self, call_id: CallId, reply: object) -> None:
        """A commit was answered."""
        refusals = self._commits.pop(call_id, {})
        if isinstance(reply, CommitReply):
            for result in reply.results:
                why = refusals.get((result.topic, result.partition), "")
                is_accepted = result.error is ErrorCode.NONE
                _expect(not (is_accepted and why), f"a commit was accepted: {why}")

    def attached(self, group_id: str, reply: q.AttachReply) -> None:
        """An Attach was answered."""
        if reply.error is not ErrorCode.NONE:
            return
        if reply.standing is q.Standing.MEMBER:
            group = self._group(group_id)
            is_member = group is not None and reply.member_id in group.members
            _expect(is_member, f"{reply.member_id} is told that it is a member")
        if reply.orders is not None:
            self._told(group_id, reply.member_id, reply.orders)

    def told(self, group_id: str, member_id: str, said: ToMember) -> None:
        """A member was told something."""
        if said.orders is not None:
            self._told(group_id, member_id, said.orders)
        if said.ack is not None:
            self._acknowledged(group_id, member_id, said.ack)

    def went_away(self, group_id: str, member_id: str, last: q.StreamEnd) -> None:
        """The stream of a member was ended."""
        group = self._group(group_id)
        if isinstance(last, q.GoAway) and last.reason in (
            q.GoAwayReason.LEFT,
            q.GoAwayReason.DRAINED,
        ):
            stays = group is not None and member_id in group.members
            _expect(not stays, f"{member_id} is told that it has left")

    # --- Inside ---

    def _group(self, group_id: str) -> SessionGroup | None:
        group = self.durable.groups.get(group_id)
        return group if isinstance(group, SessionGroup) else None

    def _told(self, group_id: str, member_id: str, orders: Orders) -> None:
        group = self._group(group_id)
        if group is None:
            _expect(not orders.partitions, f"{member_id} is told of a group that there is not")
            return
        for partition in orders.partitions:
            says = _truth(group, member_id, partition)
            _expect(not says, f"{member_id} is told {partition}, but {says}")
        version, missing = self._unsent.pop((group_id, member_id), (0, set()))
        if orders.based_on < 0:
            if version != orders.version:  # Its first part.
                missing = set(group.partitions_of(member_id))
                missing |= group.preparing.get(member_id, set())
            missing -= {(partition.topic, partition.partition) for partition in orders.partitions}
            if orders.is_part:
                self._unsent[group_id, member_id] = orders.version, missing
            else:
                _expect(not missing, f"{member_id} is not told of {missing}")

    def _acknowledged(self, group_id: str, member_id: str, ack: HeartbeatAck) -> None:
        group = self._group(group_id)
        forced = set()
        if group is not None:
            forced = {
                partition
                for partition, handoff in group.open_handoffs()
                if handoff.phase is Phase.FORCED and handoff.source == member_id
            }
        _expect(
            forced == set(ack.expiring),
            f"{member_id} is told that {set(ack.expiring)} are not renewed; {forced} are forced",
        )


def _why_not(group: SessionGroup, member_id: str, each: object) -> str:
    partition = each.topic, each.partition  # type: ignore[attr-defined]
    member = group.members.get(member_id)
    if member is None or member.is_ended:
        return f"the session of {member_id} has ended"
    if group.holder(partition) != member_id:
        return f"{member_id} does not hold {partition}"
    if group.token(partition) != each.token:  # type: ignore[attr-defined]
        return f"the token of {partition} is another"
    return (
        f"{partition} was released" if group.partition_state(partition).release is not None else ""
    )


def _truth(group: SessionGroup, member_id: str, said: OrderedPartition) -> str:
    """Difference between an order and the log; empty: none."""
    partition = said.topic, said.partition
    handoff = group.handoff(partition)
    phase = None if handoff is None else handoff.phase
    if said.order is Order.WARM:
        agrees = (
            handoff is not None
            and handoff.successor == member_id
            and handoff.handoff_id == said.handoff_id
            and handoff.is_prepared_for
        )
        return "" if agrees else f"its hand-off is {handoff}"
    if said.order is Order.LOST and not said.token:
        return "" if group.holder(partition) != member_id else "it holds it"
    if group.holder(partition) != member_id or group.token(partition) != said.token:
        return f"{group.holder(partition)!r} holds it under {group.token(partition)}"
    phases = {
        Order.ACTIVE: (None, Phase.PREPARE),
        Order.DRAIN: (Phase.DRAIN,),
        Order.LOST: (Phase.FORCED,),
    }
    return "" if phase in phases[said.order] else f"its phase is {phase}"


def _facts(table: GroupTable, other: GroupTable) -> list[str]:
    """Durable facts of the groups that are session groups in both tables."""
    both = [
        group
        for group_id, group in table.groups.items()
        if isinstance(group, SessionGroup) and isinstance(other.groups.get(group_id), SessionGroup)
    ]
    return sorted(repr(record) for group in both for record in group.records())


def _but(these: list[str], others: list[str]) -> list[str]:
    return [each for each in these if each not in others]


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise InvariantViolated(message)
