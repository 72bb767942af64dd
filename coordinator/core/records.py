"""What is written to the log, and the one function through which it becomes true.

`apply` is used for a record that the log has just acknowledged and for one that is
read back at load. A change that is not acknowledged yet is a record waiting in the
shard, and nowhere else: dropping the record is the roll-back.

What members hold follows from records alone: their assignments, and in a Stable group the ids
under which static members have their places. At load there are no members while the log is read;
`dormant` makes them of the last `GroupMetadata` and applies it once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator.core.ids import NO_GENERATION, NO_LEADER_EPOCH, NO_TIME

if TYPE_CHECKING:
    from coordinator.core.classic.group import Group


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member as the log knows it: its metadata for the selected protocol only."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A group's assignment, whole. Written by the leader's SyncGroup, by a static member's
    replacement, and with no members when a join phase ends with none."""

    group_id: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    state_changed_at_ms: int
    members: tuple[MemberRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationFloor:
    """Generations up to `generation` may have been handed out: never hand them out again."""

    group_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class OffsetCommitted:
    """`expires_at_ms` overrides the retention when it is set. Times are epoch milliseconds."""

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    committed_at_ms: int = 0
    expires_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ManifestStored:
    """The manifest of the group's last commit that carried one."""

    group_id: str
    manifest: bytes


@dataclass(frozen=True, slots=True)
class OffsetDeleted:
    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    group_id: str


@dataclass(frozen=True, slots=True)
class RebalanceMember:
    """A member that joined a rebalance. Epoch milliseconds; -1: it did not."""

    member_id: str
    client_id: str
    client_host: str
    is_new: bool
    session_timeout_ms: int
    joined_at_ms: int
    synced_at_ms: int = NO_TIME


@dataclass(frozen=True, slots=True)
class RemovedMember:
    """A member that a rebalance went on without; `cause` in words."""

    member_id: str
    client_id: str
    client_host: str
    cause: str


@dataclass(frozen=True, slots=True)
class RebalanceRecord:
    """One rebalance, from its cause to its end, for the journal.

    `outcome` is completed, interrupted (by the next one) or failed. `member_id` and what follows
    describe who caused it. Times are epoch milliseconds, -1 where it did not come to that:
    `joined_at_ms` the end of the join phase, `synced_at_ms` when the leader handed the assignment
    in, `ended_at_ms` when that was durable. `was_initial`: an empty group's first members, for
    whom the initial delay is waited. `protocol` is the one selected.

    `members` are in the order in which they joined; of many only those who came last.
    `partitions_moved` is -1 where assignments cannot be read. `unowned_*` are about partitions
    that had no owner for a time which this rebalance ended.
    """

    group_id: str
    cause: str
    outcome: str
    member_id: str
    client_id: str
    client_host: str
    reason: str
    generation_before: int
    generation_after: int
    protocol: str
    was_initial: bool
    started_at_ms: int
    joined_at_ms: int
    synced_at_ms: int
    ended_at_ms: int
    leader: str
    member_count: int
    members: tuple[RebalanceMember, ...] = ()
    removed: tuple[RemovedMember, ...] = ()
    partitions_moved: int = -1
    unowned_partitions: int = 0
    unowned_ms_max: int = 0
    unowned_ms_total: int = 0


Record = (
    GroupMetadata
    | GenerationFloor
    | OffsetCommitted
    | ManifestStored
    | OffsetDeleted
    | GroupDeleted
    | RebalanceRecord
)


JOURNAL_LENGTH = 20
"""Rebalances of a group that are kept."""


def apply(record: Record, group: Group) -> None:
    """Make an acknowledged record true; live and at load.

    What the members are doing meanwhile (parked calls, states of a rebalance) is not in any record
    and is not touched. The machine owns the table of groups: it takes a deleted one out.
    """
    match record:
        case GroupMetadata():
            group.committed = record
            group.durable_generation = max(group.durable_generation, record.generation)
            if group.members:
                _hand_out(record, group)
        case GenerationFloor():
            group.durable_generation = max(group.durable_generation, record.generation)
        case OffsetCommitted():
            group.offsets[(record.topic, record.partition)] = record
            group.settle_offset((record.topic, record.partition))
        case ManifestStored():
            group.manifest = record.manifest
        case OffsetDeleted():
            group.offsets.pop((record.topic, record.partition), None)
            if group.log_ends:
                group.log_ends.pop((record.topic, record.partition), None)
        case RebalanceRecord():
            group.journal = (*group.journal, record)[-JOURNAL_LENGTH:]
        case GroupDeleted():
            group.journal = ()
            group.offsets.clear()
            group.committed = None
            group.manifest = b""
            group.durable_generation = NO_GENERATION


def drop(record: Record, group: Group) -> None:
    """Forget a record that the log has refused. That is the whole roll-back."""
    if isinstance(record, OffsetCommitted):
        group.settle_offset((record.topic, record.partition))


def _hand_out(record: GroupMetadata, group: Group) -> None:
    """Give every member what the log says that it has.

    In a join phase ids need not be durable: a restarted process may have its place there already,
    and a record of the generation before does not take it back.
    """
    in_force = group.is_in_force(record.generation)
    for stored in record.members:
        if in_force and stored.instance_id is not None:
            group.give_place(stored)
        member = group.members.get(stored.member_id)
        if member is not None:
            member.assignment = stored.assignment


def records_of(group: Group) -> list[Record]:
    """The records that bring a group's durable facts back, and nothing else.

    They are the very objects the group holds: nothing is copied.
    """
    records: list[Record] = list(group.offsets.values())
    if group.committed is not None:
        records.append(group.committed)
    if group.durable_generation > (
        group.committed.generation if group.committed else NO_GENERATION
    ):
        records.append(GenerationFloor(group.group_id, group.durable_generation))
    if group.manifest:
        records.append(ManifestStored(group.group_id, group.manifest))
    records += group.journal
    return records


def metadata_of(
    group: Group, now_ms: int, assignments: dict[str, bytes] | None = None
) -> GroupMetadata:
    """The group as it is written; with each member's own assignment unless others are given."""
    return GroupMetadata(
        group_id=group.group_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id,
        state_changed_at_ms=now_ms,
        members=tuple(
            member.record(
                group.protocol_name,
                member.assignment
                if assignments is None
                else assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ),
    )
