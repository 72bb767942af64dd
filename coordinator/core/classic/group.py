"""A group of the classic protocol: its state, and the operations that keep it consistent.

Answers by state (requests that pass identity and generation checks):

    state              JoinGroup               SyncGroup              Heartbeat
    EMPTY              starts the initial      UNKNOWN_MEMBER_ID      UNKNOWN_MEMBER_ID
                       join phase
    PREPARING_REBALANCE parks                  REBALANCE_IN_PROGRESS  REBALANCE_IN_PROGRESS,
                                                                      and counts as life
    AWAITING_SYNC      repeats the answer, or  parks; the leader's    NONE
                       starts a join phase     is written
    STABLE             follower: repeats the   the stored assignment  NONE
                       answer; leader: starts
                       a join phase
    DEAD               COORDINATOR_NOT_AVAILABLE throughout

Durable facts (`committed`, `journal`, `durable_generation`, what members hold, and those of every
group) are set by `Group.apply` alone. Everything else is soft: it changes at once and is rebuilt
from the durable facts at load. Assignments, and in a Stable group the member ids of static members,
come from records alone. At load there are no members while the log is read; `dormant` creates them
from the last `GroupMetadata` and applies it once more.

Source: KIP-62, KIP-134, KIP-345, KIP-394; Kafka `ClassicGroup`, `ClassicGroupMember`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from coordinator.core.classic.account import Account
from coordinator.core.classic.member import ClassicMember, Protocols
from coordinator.core.classic.replacement import Replacement
from coordinator.core.group import Group, GroupState
from coordinator.core.values.errors import InvariantViolated
from coordinator.core.values.ids import NO_GENERATION, NO_TIME, CallId
from coordinator.core.values.rebalance_journal import JOURNAL_LENGTH, RebalanceRecord
from coordinator.core.values.records import (
    GenerationFloor,
    GroupDeleted,
    GroupMetadata,
    MemberRecord,
    Record,
)

TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.AWAITING_SYNC, GroupState.EMPTY, GroupState.DEAD}
    ),
    GroupState.AWAITING_SYNC: frozenset(
        {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset({GroupState.DEAD}),
}
"""Allowed transitions. The diagram in ARCHITECTURE.md is generated from this table."""


ParkedCalls = dict[CallId, "tuple[ClassicGroup, ClassicMember]"]
"""Group and member of each parked call, over all groups of a machine."""
MembersByHost = Counter[str]
"""Number of members per client host, over all groups."""


class ClassicGroup(Group):
    """A classic group. Its methods keep the counters consistent; the rules are in other files."""

    kind = "classic"
    __slots__ = (
        "_account",
        "assigned_generation",
        "awaited_syncs",
        "committed",
        "durable_generation",
        "generation",
        "generation_floor",
        "initial_join",
        "journal",
        "leader_id",
        "members",
        "members_by_host",
        "new_member_added",
        "parked_calls",
        "parked_joins",
        "pending_member_ids",
        "protocol_counts",
        "protocol_name",
        "rebalance_began_ms",
        "replacements",
        "static_members",
    )

    def __init__(
        self, group_id: str, parked_calls: ParkedCalls, members_by_host: MembersByHost, now_ms: int
    ) -> None:
        super().__init__(group_id, now_ms)
        self.generation = 0
        # Generations up to this one may have been used by an earlier owner of the shard.
        self.generation_floor = 0
        # Last generation with an assignment from the leader, which is written once.
        self.assigned_generation = NO_GENERATION
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        # Dicts as sets: an empty dict is a third of the size, and every group has two.
        self.pending_member_ids: dict[str, None] = {}
        self.awaited_syncs: dict[str, None] = {}
        self.parked_joins = 0
        self.protocol_counts: dict[str, int] = {}
        self.initial_join = False
        self.new_member_added = False
        # Written one at a time: the record of the first is in flight. Empty except in Stable.
        self.replacements: tuple[Replacement, ...] = ()
        self.parked_calls = parked_calls
        self.members_by_host = members_by_host
        self.rebalance_began_ms = NO_TIME  # The last one.
        self._account: Account | None = None
        # Durable facts.
        self.journal: tuple[RebalanceRecord, ...] = ()
        self.committed: GroupMetadata | None = None
        self.durable_generation = NO_GENERATION

    # --- State ---

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Change the state.

        Raises:
            InvariantViolated: `TRANSITIONS` does not allow it.
        """
        if state not in TRANSITIONS[self.state]:
            raise InvariantViolated(
                f"group {self.group_id!r} may not go from {self.state.name} to {state.name}"
            )
        self.state = state
        self.state_changed_at_ms = now_ms

    def is_in_force(self, generation: int) -> bool:
        """True if the group is Stable in that generation."""
        return self.state is GroupState.STABLE and self.generation == generation

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members; 0 with none."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    @property
    def is_writing_assignment(self) -> bool:
        """True if the assignment of the running generation is on its way to the log."""
        is_given = self.assigned_generation == self.generation
        return self.state is GroupState.AWAITING_SYNC and is_given

    @property
    def member_count(self) -> int:
        if self.members or self.state is not GroupState.STABLE or self.committed is None:
            return len(self.members)
        return len(self.committed.members)

    @property
    def selected_protocol(self) -> str:
        return self.protocol_name or ""

    @property
    def last_rebalance(self) -> RebalanceRecord | None:
        """The newest rebalance of the journal."""
        return next((record for record in reversed(self.journal) if not record.is_return), None)

    @property
    def last_rebalance_ms(self) -> int:
        last = self.last_rebalance
        return NO_TIME if last is None else last.ended_at_ms

    @property
    def rebalancing_since_ms(self) -> int:
        return self.rebalance_began_ms if self.is_rebalancing else NO_TIME

    @property
    def is_rebalancing(self) -> bool:
        """True from the start of a join phase until the assignment is in force."""
        return self.state in (GroupState.PREPARING_REBALANCE, GroupState.AWAITING_SYNC)

    @property
    def last_record_ms(self) -> int:
        """Time of the newest record of the group that says when it was written."""
        times = [stored.committed_at_ms for stored in self.offsets.values()]
        times += [record.ended_at_ms for record in self.journal[-1:]]
        if self.committed is not None:
            times.append(self.committed.state_changed_at_ms)
        return max(times, default=NO_TIME)

    @property
    def account(self) -> Account:
        """Memory of the journal about the group; no rule looks at it."""
        if self._account is None:
            self._account = Account()
        return self._account

    def close_account(self) -> None:
        """Free the memory of an account with nothing in it."""
        if self._account is not None and self._account.is_empty:
            self._account = None

    @property
    def was_never_used(self) -> bool:
        """True if nothing came of the commit that made the group."""
        return not self.generation and self.can_be_deleted and not self.records()

    @property
    def has_no_members(self) -> bool:
        return not self.members and not self.pending_member_ids

    # --- Members ---

    def add_member(self, member: ClassicMember) -> None:
        """Add a member. The first one becomes the leader.

        Raises:
            InvariantViolated: its id or its instance id is taken.
        """
        if member.member_id in self.members:
            raise InvariantViolated(f"member {member.member_id!r} is there already")
        if member.instance_id is not None:
            if member.instance_id in self.static_members:
                raise InvariantViolated(f"instance {member.instance_id!r} is there already")
            self.static_members[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self.members_by_host[member.client_host] += 1
        self.pending_member_ids.pop(member.member_id, None)
        self._count_protocols(member.protocols, 1)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove_member(self, member_id: str) -> ClassicMember:
        """Remove a member; if it was the leader, another one is. Its calls must be answered before.

        Raises:
            InvariantViolated: no such member, or it still has a parked call.
        """
        member = self.members.pop(member_id, None)
        if member is None:
            raise InvariantViolated(f"no member {member_id!r} to remove")
        if member.parked_join is not None or member.parked_sync is not None:
            raise InvariantViolated(f"member {member_id!r} would leave a call unanswered")
        self._count_protocols(member.protocols, -1)
        self._leave_host(member)
        self.awaited_syncs.pop(member_id, None)
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def _leave_host(self, member: ClassicMember) -> None:
        self.members_by_host[member.client_host] -= 1
        if not self.members_by_host[member.client_host]:
            del self.members_by_host[member.client_host]

    def rename_static_member(self, instance_id: str, new_member_id: str) -> ClassicMember:
        """Give a static member a new id; it keeps its assignment and its role.

        Raises:
            InvariantViolated: the instance id is not registered.
        """
        old_member_id = self.static_members.get(instance_id)
        if old_member_id is None:
            raise InvariantViolated(f"no static member {instance_id!r} to replace")
        # Rebuilt, so that the order of the members stays.
        self.members = {
            (new_member_id if member_id == old_member_id else member_id): member
            for member_id, member in self.members.items()
        }
        member = self.members[new_member_id]
        member.member_id = new_member_id
        self.static_members[instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        if old_member_id in self.awaited_syncs:
            self.awaited_syncs.pop(old_member_id, None)
            self.awaited_syncs[new_member_id] = None
        return member

    def give_place(self, stored: MemberRecord) -> None:
        """Give a static member's place to a restarted process, unless it has it already.

        Raises:
            InvariantViolated: the instance id is not registered.
        """
        assert stored.instance_id is not None
        if self.static_members.get(stored.instance_id) == stored.member_id:
            return
        member = self.rename_static_member(stored.instance_id, stored.member_id)
        member.session_timeout_ms = stored.session_timeout_ms
        member.rebalance_timeout_ms = stored.rebalance_timeout_ms
        member.client_id = stored.client_id
        member.client_software = stored.client_software
        self._leave_host(member)
        member.client_host = stored.client_host
        self.members_by_host[stored.client_host] += 1

    def elect_joined_leader(self) -> bool:
        """Elect a leader that has joined, if possible the present one. False: no member has."""
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is not None and leader.parked_join is not None:
            return True
        for member in self.members.values():
            if member.parked_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    # --- Parked calls ---

    def park_join(self, member: ClassicMember, call_id: CallId) -> None:
        """Park a JoinGroup. The member must not have one parked."""
        assert member.parked_join is None
        member.parked_join = call_id
        self.parked_joins += 1
        self.parked_calls[call_id] = (self, member)

    def unpark_join(self, member: ClassicMember) -> CallId | None:
        """Take the parked JoinGroup out, to be answered; None if there is none."""
        call_id = member.parked_join
        if call_id is not None:
            member.parked_join = None
            self.parked_joins -= 1
            del self.parked_calls[call_id]
        return call_id

    def park_sync(self, member: ClassicMember, call_id: CallId) -> None:
        """Park a SyncGroup. The member must not have one parked."""
        assert member.parked_sync is None
        member.parked_sync = call_id
        self.parked_calls[call_id] = (self, member)

    def unpark_sync(self, member: ClassicMember) -> CallId | None:
        """Take the parked SyncGroup out, to be answered; None if there is none."""
        call_id = member.parked_sync
        if call_id is not None:
            member.parked_sync = None
            del self.parked_calls[call_id]
        return call_id

    # --- Protocols ---

    def set_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        """Replace a member's protocol list."""
        self._count_protocols(member.protocols, -1)
        member.protocols = protocols
        self._count_protocols(protocols, 1)

    def common_protocols(self) -> set[str]:
        """Names of the protocols that every member lists."""
        members = len(self.members)
        return {name for name, count in self.protocol_counts.items() if count == members}

    def _count_protocols(self, protocols: Iterable[tuple[str, bytes]], by: int) -> None:
        for name in {name for name, _ in protocols}:
            count = self.protocol_counts.get(name, 0) + by
            if count:
                self.protocol_counts[name] = count
            else:
                del self.protocol_counts[name]

    # --- The log ---

    def _apply_own(self, record: Record) -> None:
        match record:
            case GroupMetadata():
                self.committed = record
                self.durable_generation = max(self.durable_generation, record.generation)
                if self.members:
                    self._hand_out(record)
            case GenerationFloor():
                self.durable_generation = max(self.durable_generation, record.generation)
            case RebalanceRecord():
                self.journal = (*self.journal, record)[-JOURNAL_LENGTH:]
            case GroupDeleted():
                self.journal = ()
                self.committed = None
                self.durable_generation = NO_GENERATION
            case _:
                raise AssertionError(f"a classic group has no {type(record).__name__}")

    def _hand_out(self, record: GroupMetadata) -> None:
        """Set the members' assignments, and in a Stable group the static members' ids.

        In a join phase ids need not be durable: a restarted process may have its place already,
        and a record of the previous generation does not revert it.
        """
        in_force = self.is_in_force(record.generation)
        for stored in record.members:
            if in_force and stored.instance_id is not None:
                self.give_place(stored)
            member = self.members.get(stored.member_id)
            if member is not None:
                member.assignment = stored.assignment

    def records(self) -> list[Record]:
        records: list[Record] = list(self.offsets.values())
        if self.committed is not None:
            records.append(self.committed)
        if self.durable_generation > (
            self.committed.generation if self.committed else NO_GENERATION
        ):
            records.append(GenerationFloor(self.group_id, self.durable_generation))
        return [*records, *self.kept_records(), *self.journal, *self.policy_records()]

    def metadata(self, now_ms: int, assignments: dict[str, bytes] | None = None) -> GroupMetadata:
        """Return the group's record, with the members' present assignments by default."""
        return GroupMetadata(
            group_id=self.group_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id,
            state_changed_at_ms=now_ms,
            members=tuple(
                member.record(
                    self.protocol_name,
                    member.assignment
                    if assignments is None
                    else assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ),
        )
