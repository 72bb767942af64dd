"""Requests, as values. `refusal` returns the reply of a request that is refused."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from coordinator.core.values.errors import Refused
from coordinator.core.values.ids import (
    NO_GENERATION,
    NO_LEADER_EPOCH,
    CallId,
)
from coordinator.core.values.rebalance_journal import StoppedPartition
from coordinator.core.values.replies import (
    CommitReply,
    CommitResult,
    DeleteReply,
    DescribeReply,
    DocumentsReply,
    EvictReply,
    FetchReply,
    HeartbeatReply,
    JoinReply,
    LeaveReply,
    ListLogEndsReply,
    ListReply,
    OffsetDeleteReply,
    PhaseReply,
    PlainReply,
    PolicyReply,
    PutReply,
    RebalancesReply,
    Reply,
    ReportLogEndsReply,
    SessionGroupReply,
    SyncReply,
)
from coordinator.core.values.session_messages import Attach, ReportedLog


@dataclass(frozen=True, slots=True, kw_only=True)
class _GroupRequest:
    """The fields that requests about one group begin with."""

    REFUSAL: ClassVar[type[PlainReply]]
    call_id: CallId
    group_id: str

    def refusal(self, refused: Refused) -> Reply:
        """Return the reply that says why the request was refused."""
        return self.REFUSAL(refused.error, refused.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup(_GroupRequest):
    """JoinGroup. `protocols` holds (name, metadata) in the order of preference.

    `client_software` is the client's library as a Kafka client reports it ("librdkafka 2.16.1"),
    bounded by the listener; empty: unknown, as over gRPC. `stopped`: what an outage has cost it.
    """

    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    client_software: str = ""
    reason: str = ""
    require_known_member_id: bool = True
    supports_skip_assignment: bool = True
    stopped: tuple[StoppedPartition, ...] = ()

    def refusal(self, refused: Refused) -> JoinReply:
        member_id = self.member_id if refused.member_id is None else refused.member_id
        return JoinReply(refused.error, refused.message, member_id=member_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup(_GroupRequest):
    """SyncGroup. `assignments` holds (member id, bytes) and is used from the leader only."""

    REFUSAL = SyncReply
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(_GroupRequest):
    REFUSAL = HeartbeatReply
    generation: int
    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeavingMember:
    member_id: str
    instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup(_GroupRequest):
    """LeaveGroup; RemoveMembers if `by_operator`."""

    REFUSAL = LeaveReply
    members: tuple[LeavingMember, ...]
    by_operator: bool = False


@dataclass(frozen=True, slots=True)
class PartitionCommit:
    """Offset to commit. `expected`: compare-and-set; -1 expects that none is stored.

    `token`: of the partition's grant, in a session group. `waited_ms`: time since it was first
    sent, if it has had no answer.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    expected: int | None = None
    token: int | None = None
    waited_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets(_GroupRequest):
    partitions: tuple[PartitionCommit, ...]
    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None
    atomic: bool = False
    manifest: bytes = b""
    retention_ms: int | None = None
    requires_empty: bool = False

    def refusal(self, refused: Refused) -> CommitReply:
        return CommitReply(
            tuple(CommitResult(p.topic, p.partition, refused.error) for p in self.partitions),
            refused.message,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsets(_GroupRequest):
    """OffsetFetch. `partitions` None: all stored offsets."""

    REFUSAL = FetchReply
    partitions: tuple[tuple[str, int], ...] | None = None
    require_stable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets(_GroupRequest):
    REFUSAL = OffsetDeleteReply
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class PutDocument:
    """`expected`: the version that has to be stored; 0: there is to be none."""

    name: str
    content: bytes
    expected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PutDocuments(_GroupRequest):
    """PutDocuments: all are written, or none."""

    REFUSAL = PutReply
    documents: tuple[PutDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchDocuments(_GroupRequest):
    """FetchDocuments of a prefix, written after a version."""

    REFUSAL = DocumentsReply
    prefix: str = ""
    after_version: int = 0


class ListOrder(Enum):
    """Order of listed groups; within equals by id. Values are the contract's numbers."""

    GROUP_ID = 0
    STATE = 1
    """Rebalancing groups first, then Stable, then Empty."""
    MEMBERS = 2
    """Most members first."""
    LAG = 3
    """Largest first, unknown last."""
    LAST_REBALANCE = 4
    """Latest first: the start of a running rebalance, or else the end of the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups:
    """ListGroups. Filters ignore case; an empty one matches all groups.

    `limit` 0: no limit. `skip`: number of groups that are left out before the first one.
    """

    call_id: CallId
    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    contains: str = ""
    limit: int = 0
    order: ListOrder = ListOrder.GROUP_ID
    skip: int = 0
    with_lag: bool = False

    def refusal(self, refused: Refused) -> ListReply:
        return ListReply(refused.error, refused.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroup(_GroupRequest):
    report_unknown: bool = False

    def refusal(self, refused: Refused) -> DescribeReply:
        return DescribeReply(self.group_id, refused.error, refused.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup(_GroupRequest):
    def refusal(self, refused: Refused) -> DeleteReply:
        return DeleteReply(self.group_id, refused.error, refused.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportLogEnds(_GroupRequest):
    """Report of the offsets that logs have."""

    REFUSAL = ReportLogEndsReply
    generation: int
    member_id: str
    instance_id: str | None = None
    ends: tuple[ReportedLog, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListLogEnds(_GroupRequest):
    REFUSAL = ListLogEndsReply


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRebalances(_GroupRequest):
    """Question about the journal. `has_waited`: for records that were on their way."""

    has_waited: bool = False
    REFUSAL = RebalancesReply


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribePhase(_GroupRequest):
    """Question which members the group's current phase waits for."""

    REFUSAL = PhaseReply


# --- Of operators, about session groups ----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeSessionGroup(_GroupRequest):
    def refusal(self, refused: Refused) -> SessionGroupReply:
        return SessionGroupReply(refused.error, refused.message, self.group_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetGroupPolicy(_GroupRequest):
    """Change a policy. `changes`: (setting, value); `defaults`: settings that get their default."""

    REFUSAL = PolicyReply
    changes: tuple[tuple[str, object], ...] = ()
    defaults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictMember(_GroupRequest):
    """Take everything from a member, and end its session. It has a member id or a name.

    is_gone: the operator vouches that the process has ended. is_dry_run: only look.
    """

    REFUSAL = EvictReply
    member_id: str = ""
    member_name: str = ""
    is_gone: bool = False
    is_dry_run: bool = False


OperatorRequest = DescribeSessionGroup | SetGroupPolicy | EvictMember
Request = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | CommitOffsets
    | FetchOffsets
    | DeleteOffsets
    | PutDocuments
    | FetchDocuments
    | ListGroups
    | DescribeGroup
    | DeleteGroup
    | ReportLogEnds
    | ListLogEnds
    | ListRebalances
    | DescribePhase
    | Attach
    | OperatorRequest
)
