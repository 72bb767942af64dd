"""Records of the log, as values. `Group.apply` applies them, live and at load."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from coordinator.core.values.ids import NO_LEADER_EPOCH, NO_OFFSET
from coordinator.core.values.plan_journal import HandoffLine, PlanRecord
from coordinator.core.values.policy import Policy
from coordinator.core.values.rebalance_journal import RebalanceRecord


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member in `GroupMetadata`; its metadata for the selected protocol only.

    `client_software` is empty if unknown.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    metadata: bytes
    assignment: bytes
    client_software: str = ""


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
class DocumentStored:
    """Bytes that a client keeps in the group under a name; without content: it is deleted."""

    group_id: str
    name: str
    content: bytes
    version: int


@dataclass(frozen=True, slots=True)
class OffsetDeleted:
    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    group_id: str


class EndCause(Enum):
    """Reason for which a session ended. The values are codes."""

    LEASE_EXPIRED = "lease_expired"
    LEFT = "left"
    DRAINED = "drained"
    RETURNING = "returning"
    """It left and announced to be back; what it held is reserved for its name."""
    RESTORED = "restored"
    """The store was put back from a copy that knows less than the member."""
    EVICTED = "evicted"


class Phase(Enum):
    """Phase of a partition. The values are codes; FREE and HELD are no hand-off."""

    PREPARE = "prepare"
    """Its holder works on, and the successor makes itself ready."""
    DRAIN = "drain"
    """Its holder finishes what it has begun."""
    FORCED = "forced"
    """Its holder is asked to stop, and is not renewed."""
    COPY = "copy"
    """Its holder has released it, and the successor makes itself ready."""
    HELD = "held"
    """Back to its holder: there is no successor any more."""


@dataclass(frozen=True, slots=True)
class SessionMemberStored:
    """A member, at its admission and whenever one of these facts changes.

    `topics` are (name, number of partitions). `leaves` after Leave(DRAIN), `leave_ms`: the time
    that it has from then on. `evicted`: an operator takes everything from it, and then it ends.
    """

    group_id: str
    member_id: str
    name: str
    session_id: str
    incarnation: str
    started_at_ms: int
    principal: str
    client_id: str
    client_host: str
    lease_ms: int
    topics: tuple[tuple[str, int], ...]
    capacity: float = 1.0
    max_partitions: int | None = None
    drain_ms: int | None = None
    rack: str = ""
    revision: str = ""
    deployment: str = ""
    leaves: bool = False
    evicted: bool = False
    leave_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SessionMemberEnded:
    """The end of a session: what it held is free, or reserved for its name for so long."""

    group_id: str
    member_id: str
    cause: EndCause
    ended_at_ms: int
    keep_ms: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """Partitions of one topic for one member, with consecutive tokens from `first_token`.

    It counts for partitions that nobody holds, or `source`: a record that was on its way before it
    may have given one to somebody else.
    """

    member_id: str
    topic: str
    partitions: tuple[tuple[int, int], ...]
    """Ranges, first and last, both included."""
    first_token: int
    source: str = ""


@dataclass(frozen=True, slots=True)
class PartitionsGranted:
    """Grants of one plan, or of a member that resumes. Whatever was open there has ended."""

    group_id: str
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class PhaseEntered:
    """A partition enters a phase of a hand-off, which lasts `length_ms` at most.

    It counts for the grant with this `token`; 0: nobody holds it, which is so in COPY. `line`: the
    hand-off so far, complete with HELD.
    """

    group_id: str
    topic: str
    partition: int
    phase: Phase
    handoff_id: int = 0
    successor: str = ""
    length_ms: int = 0
    position: int = NO_OFFSET
    token: int = 0
    line: HandoffLine | None = None


@dataclass(frozen=True, slots=True)
class PartitionSwitched:
    """The old token ends, and the holder's begins; without a holder the partition is free.

    It counts for the grant with `ended_token`; 0: nobody holds it, which is so in COPY.
    """

    group_id: str
    topic: str
    partition: int
    member_id: str = ""
    token: int = 0
    line: HandoffLine | None = None
    ended_token: int = 0


@dataclass(frozen=True, slots=True)
class ReservationFreed:
    """The end of keeping for a name: its time is up, or its place was given up."""

    group_id: str
    name: str


@dataclass(frozen=True, slots=True)
class PolicyStored:
    group_id: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class TokenFloor:
    """Tokens of a shard, in snapshots: those up to this one have been given out.

    `handoff_id`: hand-offs up to this one have been opened.
    """

    token: int
    handoff_id: int = 0
    group_id: str = ""


@dataclass(frozen=True, slots=True)
class NumbersRaised:
    """Numbers of a shard whose store has lost commits: those up to these may have been given out.

    generation: of any group, new ones included. token: of grants, and of hand-offs.
    """

    generation: int
    token: int = 0
    group_id: str = ""


@dataclass(frozen=True, slots=True)
class HoldingsStored:
    """Snapshot record: holders of a topic's partitions from `first_partition` on, in columns.

    holders: position of each one's holder among the members of the snapshot, from 1; 0: nobody.
    tokens: of the grants; 0: none.
    """

    group_id: str
    topic: str
    first_partition: int
    holders: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReservationStored:
    """Snapshot record: partitions that are reserved for a name, by topic, as ranges.

    `is_delayed`: since a lease has ended, and not because its member is to return.
    """

    group_id: str
    name: str
    keep_ms: int
    partitions: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
    is_delayed: bool = False


@dataclass(frozen=True, slots=True)
class HandoffsEnded:
    """Snapshot record: ended hand-offs, for the journal. They change nothing else."""

    group_id: str
    records: tuple[PartitionSwitched | PhaseEntered, ...]


SessionRecord = (
    SessionMemberStored
    | SessionMemberEnded
    | PartitionsGranted
    | PhaseEntered
    | PartitionSwitched
    | ReservationFreed
    | PolicyStored
    | PlanRecord
    | HandoffsEnded
    | HoldingsStored
    | ReservationStored
    | TokenFloor
    | NumbersRaised
)

Record = (
    GroupMetadata
    | GenerationFloor
    | OffsetCommitted
    | ManifestStored
    | DocumentStored
    | OffsetDeleted
    | GroupDeleted
    | RebalanceRecord
    | SessionRecord
)
