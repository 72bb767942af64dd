"""What is written to the log, as values. `Group.apply` makes them true, live and at load."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.ids import NO_LEADER_EPOCH, NO_TIME


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
