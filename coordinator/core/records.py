"""Records of the log, as values. `Group.apply` applies them, live and at load."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.ids import NO_LEADER_EPOCH, NO_TIME


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member in `GroupMetadata`; its metadata for the selected protocol only."""

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
    """A generation of a group: its members and their assignments.

    Written by the leader's SyncGroup, by the replacement of a static member, and without members
    when a join phase ends with none.
    """

    group_id: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    state_changed_at_ms: int
    members: tuple[MemberRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationFloor:
    """Generations up to `generation` may have been used and must not be used again."""

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
    """A member that joined a rebalance. Times are epoch milliseconds; -1: not synced."""

    member_id: str
    client_id: str
    client_host: str
    is_new: bool
    session_timeout_ms: int
    joined_at_ms: int
    synced_at_ms: int = NO_TIME


@dataclass(frozen=True, slots=True)
class RemovedMember:
    """A member that was removed or left during a rebalance; `cause` in words, with its reason."""

    member_id: str
    client_id: str
    client_host: str
    cause: str


@dataclass(frozen=True, slots=True)
class RebalanceRecord:
    """One rebalance, from its cause to its end, for the journal.

    `outcome` is completed, interrupted (by the next one) or failed. `member_id`, `client_id`,
    `client_host` and `reason` describe the member that caused it. Times are epoch milliseconds, -1
    if that point was not reached: `joined_at_ms` the end of the join phase, `synced_at_ms` the
    leader's SyncGroup, `ended_at_ms` when the assignment was durable. `was_initial`: the first
    rebalance of an empty group, with the initial delay. `protocol` is the selected one.

    `members` are in the order in which they joined; of many only the last ones.
    `partitions_moved` is -1 if assignments cannot be parsed. `unowned_*` count partitions that were
    without an owner until this rebalance.
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
"""Number of rebalances that a group's journal keeps."""
