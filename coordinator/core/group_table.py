"""The groups of a shard: creation by records, removal, snapshots and unloading."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from coordinator.core.classic import membership
from coordinator.core.classic.dormant import DormantGroups
from coordinator.core.classic.group import ClassicGroup, MembersByHost, ParkedCalls
from coordinator.core.group import Group, GroupState
from coordinator.core.sessions import record_events
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.step import ShardContext, Step
from coordinator.core.values.effects import Effects
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.events import Event
from coordinator.core.values.ids import NO_TIME
from coordinator.core.values.plan_journal import PlanRecord
from coordinator.core.values.policy import Policy
from coordinator.core.values.records import (
    DocumentStored,
    GroupDeleted,
    GroupMetadata,
    HandoffsEnded,
    HoldingsStored,
    NumbersRaised,
    OffsetDeleted,
    PartitionsGranted,
    PartitionSwitched,
    PhaseEntered,
    PolicyStored,
    Record,
    ReservationFreed,
    ReservationStored,
    SessionMemberEnded,
    SessionMemberStored,
    TokenFloor,
)

AnyGroup: TypeAlias = ClassicGroup | SessionGroup
"""A group as the table has it. Whoever uses what one kind has alone asks for the kind first."""

SESSION_RECORDS = (
    SessionMemberStored,
    SessionMemberEnded,
    PartitionsGranted,
    PhaseEntered,
    PartitionSwitched,
    ReservationFreed,
    HoldingsStored,
    ReservationStored,
)
JOURNAL_RECORDS = (PlanRecord, HandoffsEnded)


class GroupTable:
    """State of a `GroupMachine`: all groups of a shard, and what their handlers share."""

    def __init__(self, context: ShardContext) -> None:
        self.context, self.numbers = context, context.numbers
        self.groups: dict[str, AnyGroup] = {}
        self.pending_events: list[Event] = []  # Events of applied records, not emitted yet.
        self.is_serving = False
        self.parked_calls: ParkedCalls = {}
        self.members_by_host: MembersByHost = Counter()
        self._dormant = DormantGroups()
        self._dormant_by_id = self._dormant.by_id  # The same dict: every heartbeat asks it.

    def apply(self, record: Record, now_ms: int) -> None:
        """Apply an acknowledged record; it creates its group if necessary."""
        self._note_tokens(record)
        group = self.groups.get(record.group_id)
        if isinstance(record, TokenFloor | NumbersRaised):
            return
        if isinstance(record, JOURNAL_RECORDS) and _is_in_use(group):
            return  # A classic member came while the record was on its way.
        is_new_policy = group is None and isinstance(record, PolicyStored)
        is_of_sessions = isinstance(record, (*SESSION_RECORDS, *JOURNAL_RECORDS)) or is_new_policy
        if is_of_sessions and not isinstance(group, SessionGroup):
            group = self._new_group(SessionGroup, record.group_id, now_ms, group)
            self.groups[record.group_id] = group
        elif isinstance(record, GroupMetadata) and isinstance(group, SessionGroup):
            group = self._new_group(ClassicGroup, record.group_id, now_ms, group)
            self.groups[record.group_id] = group
        if (
            self.is_serving
            and (event := record_events.event_of(self._sessions(group), record)) is not None
        ):
            self.pending_events.append(event)
        if group is None:
            if isinstance(record, GroupDeleted | OffsetDeleted):
                return
            group = self._new_group(ClassicGroup, record.group_id, now_ms)
            self.groups[record.group_id] = group
        if isinstance(group, SessionGroup):
            self._count_host(group, record)
        group.apply(record)
        if isinstance(record, GroupDeleted) and group.state is GroupState.EMPTY:
            # A group that was joined while its deletion was in flight stays.
            if group.can_be_deleted:
                del self.groups[record.group_id]

    def _count_host(self, group: SessionGroup, record: Record) -> None:
        """Count session members by the hosts that they come from."""
        if not isinstance(record, SessionMemberStored | SessionMemberEnded):
            return
        known, hosts = group.members.get(record.member_id), self.members_by_host
        if known is None and isinstance(record, SessionMemberStored):
            hosts[record.client_host] += 1
        elif known is not None and isinstance(record, SessionMemberEnded):
            host = known.record.client_host
            hosts[host] -= 1
            if not hosts[host]:
                del hosts[host]

    @staticmethod
    def _sessions(group: Group | None) -> SessionGroup | None:
        return group if isinstance(group, SessionGroup) else None

    def _note_tokens(self, record: Record) -> None:
        match record:
            case DocumentStored():
                self.numbers.written(record.version)
            case PartitionsGranted():
                for grant in record.grants:
                    count = sum(last - first + 1 for first, last in grant.partitions)
                    self.numbers.written(grant.first_token + count - 1)
            case HoldingsStored():
                self.numbers.written(max(record.tokens, default=0))
            case PartitionSwitched():
                self.numbers.written(record.token)
            case PhaseEntered():
                self.numbers.opened(record.handoff_id)
            case TokenFloor():
                self.numbers.written(record.token)
                self.numbers.opened(record.handoff_id)
            case NumbersRaised():
                floor = max(self.numbers.generation_floor, record.generation)
                self.numbers.generation_floor = floor
                self.numbers.written(record.token)
                self.numbers.opened(record.token)

    def _new_group(
        self, kind: type[AnyGroup], group_id: str, now_ms: int, former: Group | None = None
    ) -> AnyGroup:
        """Create a group; the caller adds it to the table.

        Args:
            former: the Empty group of another kind that it replaces; it takes over what that has.
        """
        group: AnyGroup
        if kind is SessionGroup:
            group = SessionGroup(group_id, now_ms)
            group.grants_from_ms = self.numbers.grants_from_ms
        else:
            group = ClassicGroup(group_id, self.parked_calls, self.members_by_host, now_ms)
            group.generation_floor = self.numbers.generation_floor
        if former is not None:
            _take_over(group, former)
        return group

    def drop(self, record: Record) -> None:
        """Roll back a record that the log has refused."""
        group = self.groups.get(record.group_id)
        if group is not None:
            group.drop(record)

    def restore(self) -> None:
        """Restore all groups from their durable facts. They are dormant at first."""
        classic = [group for group in self.groups.values() if isinstance(group, ClassicGroup)]
        went_back = self.numbers.grants_from_ms != NO_TIME
        self._dormant.restore(classic, self.numbers.generation_floor, store_went_back=went_back)

    def raise_numbers(self, raised: int, now_ms: int) -> NumbersRaised:
        """Raise all numbers above those in commits that the store has lost; before `restore`.

        Returns:
            The record of it, which has to be the first that this owner writes.
        """
        highest, longest_ms = self.numbers.generation_floor, Policy().lease_ms
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                highest = max(highest, group.durable_generation)
            else:
                leases = (member.record.lease_ms for member in group.members.values())
                longest_ms = max(longest_ms, group.policy.lease_ms, *leases)
        record = NumbersRaised(highest + raised, self.numbers.above_lost(raised, now_ms))
        self.apply(record, now_ms)
        # Holders whose grants the store has lost may act until then.
        self.numbers.grants_from_ms = now_ms + longest_ms
        return record

    @property
    def dormant_groups(self) -> int:
        """Number of loaded groups that have not been activated yet."""
        return len(self._dormant_by_id)

    def records(self) -> list[Record]:
        """Return records that restore all durable facts of all groups."""
        records = [record for group in self.groups.values() for record in group.records()]
        if self.numbers.generation_floor:
            records.append(NumbersRaised(self.numbers.generation_floor))
        if self.numbers.durable_token:
            records.append(TokenFloor(self.numbers.durable_token, self.numbers.durable_handoff))
        return records

    def unload(self, error: ErrorCode, now_ms: int, out: Effects) -> None:
        """Answer every parked call with `error` and forget all groups."""
        step = Step(now_ms, out, self.context)
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                membership.give_up(group, error, step)
            else:
                group.state = GroupState.DEAD
        self.groups.clear()
        self.members_by_host.clear()
        self._dormant_by_id.clear()


def _is_in_use(group: Group | None) -> bool:
    return isinstance(group, ClassicGroup) and (group.generation > 0 or not group.has_no_members)


def _take_over(new: Group, old: Group) -> None:
    """Give a group of another kind what outlives its members."""
    new.offsets, new.pending_offsets = old.offsets, old.pending_offsets
    new.manifest, new.log_ends = old.manifest, old.log_ends
    new.documents, new.document_writes = old.documents, old.document_writes
    new.policy, new.is_policy_stored = old.policy, old.is_policy_stored
    new.policy_writes, new.deletions = old.policy_writes, old.deletions
