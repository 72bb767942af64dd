"""The base of all kinds of groups: state, offsets, manifest, documents.

Subclasses add members and the state of their protocol. Rules that protocols share (`offsets`,
`expiration`, `log_ends`, `admin`) use this class only.

Durable facts are changed by `Group.apply` alone: for a record that the log has just acknowledged,
and for one that is read at load. A change that is not acknowledged yet exists only as a record in
the shard's queue: dropping the record is the roll-back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import ClassVar

from coordinator.core.values.errors import ErrorCode, MustWait, Refused
from coordinator.core.values.plan_journal import PlanRecord
from coordinator.core.values.policy import Policy
from coordinator.core.values.rebalance_journal import RebalanceRecord
from coordinator.core.values.records import (
    DocumentStored,
    GroupDeleted,
    ManifestStored,
    OffsetCommitted,
    OffsetDeleted,
    PolicyStored,
    Record,
)
from coordinator.core.values.replies import UNKNOWN_LAG, LogEnd

CONSUMER_PROTOCOL_TYPE = "consumer"
JOURNAL_WAIT_MS = 2_000
"""Longest time that a question about the journal waits for a record that is on its way."""


class GroupState(Enum):
    """State of a group. The value is the name in Kafka's tools."""

    EMPTY = "Empty"
    """No members; offsets may remain."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Gathering members: the join phase."""
    AWAITING_SYNC = "CompletingRebalance"
    """A generation exists; its assignment is awaited from the leader, then from the log."""
    ASSIGNING = "Assigning"
    """A plan of a session group is due."""
    RECONCILING = "Reconciling"
    """Hand-offs of a session group are open."""
    STABLE = "Stable"
    """The assignment is durable and in force."""
    DEAD = "Dead"
    """Deleted, or its shard was unloaded."""


class Group(ABC):
    """A group of any kind."""

    kind: ClassVar[str]
    """Group type in listings, such as `classic`."""

    __slots__ = (
        "deletions",
        "document_writes",
        "documents",
        "group_id",
        "is_policy_stored",
        "journal_writes",
        "log_ends",
        "manifest",
        "offsets",
        "pending_offsets",
        "policy",
        "policy_writes",
        "protocol_type",
        "state",
        "state_changed_at_ms",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_changed_at_ms = now_ms
        self.protocol_type: str | None = None
        # Topics that members read. None: unknown, because they do not say so in Kafka's format.
        self.subscribed_topics: frozenset[str] | None = frozenset()
        # Commits in flight by partition: their number, and the time-out of the newest.
        self.pending_offsets: dict[tuple[str, int], tuple[int, int]] = {}
        # Ends of logs that members have reported, by partition; None: none reported.
        self.log_ends: dict[tuple[str, int], LogEnd] | None = None
        # Durable facts.
        self.offsets: dict[tuple[str, int], OffsetCommitted] = {}
        self.manifest = b""
        self.documents: dict[str, DocumentStored] = {}
        self.document_writes = 0  # In flight.
        self.policy = Policy()  # A session group's; it outlives changes of the group's kind.
        self.is_policy_stored = False
        self.policy_writes = 0  # In flight.
        self.deletions = 0  # In flight.
        self.journal_writes = 0  # In flight.

    @property
    @abstractmethod
    def member_count(self) -> int:
        """Number of members; of a dormant group, the number it will have once it is active."""

    @property
    @abstractmethod
    def selected_protocol(self) -> str:
        """The protocol that the members agreed on last; of consumer groups the assignor."""

    @property
    @abstractmethod
    def last_rebalance_ms(self) -> int:
        """End of the last rebalance in the journal; NO_TIME without one."""

    @property
    @abstractmethod
    def rebalancing_since_ms(self) -> int:
        """Start of the running rebalance; NO_TIME without one."""

    @property
    @abstractmethod
    def has_no_members(self) -> bool:
        """True if there are no members and no pending member ids."""

    @property
    def is_awaited(self) -> bool:
        """True if what makes use of the group is on its way to the log."""
        return self.policy_writes > 0 or self.document_writes > 0

    @property
    def can_be_deleted(self) -> bool:
        """True if the group has no members, offsets, documents or writes of those in flight."""
        in_use = self.offsets or self.documents or self.pending_offsets or self.is_awaited
        return self.has_no_members and not in_use

    def check_alive(self) -> None:
        """Refuse requests for a Dead group.

        Raises:
            Refused: COORDINATOR_NOT_AVAILABLE.
        """
        if self.state is GroupState.DEAD:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def lag(self) -> int:
        """Rows behind the reported ends of logs, in sum; UNKNOWN_LAG if no end is known."""
        if not self.log_ends:
            return UNKNOWN_LAG
        ends = ((end, self.offsets.get(key)) for key, end in self.log_ends.items())
        return sum(end.lag(None if stored is None else stored.offset) for end, stored in ends)

    def is_subscribed(self, topic: str) -> bool:
        """True if a member reads `topic`; assumed of a consumer group with unreadable metadata."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    # --- The log ---

    def apply(self, record: Record) -> None:
        """Apply an acknowledged record; live and at load.

        Soft state (parked calls, the phase of a rebalance) is in no record and does not change.
        The machine owns the table of groups and removes a deleted one.
        """
        match record:
            case OffsetCommitted():
                self.offsets[(record.topic, record.partition)] = record
                self.resolve_offset((record.topic, record.partition))
            case ManifestStored():
                self.manifest = record.manifest
            case DocumentStored():
                self.documents.pop(record.name, None)
                if record.content:
                    self.documents[record.name] = record
                self._document_resolved()
            case OffsetDeleted():
                self.offsets.pop((record.topic, record.partition), None)
                if self.log_ends:
                    self.log_ends.pop((record.topic, record.partition), None)
            case PolicyStored():
                self.policy, self.is_policy_stored = record.policy, True
            case GroupDeleted():
                self.offsets.clear()
                self.manifest = b""
                self.documents.clear()
                self.policy, self.is_policy_stored = Policy(), False
                self._deletion_resolved()
                self._apply_own(record)
            case _:
                self._journal_resolved(record)
                self._apply_own(record)

    @abstractmethod
    def _apply_own(self, record: Record) -> None:
        """Apply a record of this kind of group alone."""

    def drop(self, record: Record) -> None:
        """Roll back a record that the log has refused."""
        if isinstance(record, OffsetCommitted):
            self.resolve_offset((record.topic, record.partition))
        elif isinstance(record, DocumentStored):
            self._document_resolved()
        elif isinstance(record, GroupDeleted):
            self._deletion_resolved()
        else:
            self._journal_resolved(record)

    def _journal_resolved(self, record: Record) -> None:
        if isinstance(record, RebalanceRecord | PlanRecord):
            self.journal_writes = max(0, self.journal_writes - 1)  # At load there are none.

    def check_journal(self, has_waited: bool, now_ms: int) -> None:
        """Have a question about the journal wait for a record that is on its way.

        Raises:
            MustWait: there is one, and it has not waited yet.
        """
        if self.journal_writes and not has_waited:
            raise MustWait(now_ms + JOURNAL_WAIT_MS)

    def _deletion_resolved(self) -> None:
        self.deletions = max(0, self.deletions - 1)  # It may be of a group before this one.

    def _document_resolved(self) -> None:
        self.document_writes = max(0, self.document_writes - 1)  # At load there are none.

    def policy_records(self) -> list[Record]:
        """The record of the policy, if one was chosen."""
        return [PolicyStored(self.group_id, self.policy)] if self.is_policy_stored else []

    def kept_records(self) -> list[Record]:
        """Records of what clients keep in the group."""
        records: list[Record] = list(self.documents.values())
        if self.manifest:
            records.append(ManifestStored(self.group_id, self.manifest))
        return records

    @abstractmethod
    def records(self) -> list[Record]:
        """Return records that restore all durable facts.

        They are the group's own objects, not copies, in a stable order: recordings compare them
        between runs.
        """

    def await_offset(self, partition: tuple[str, int], deadline_ms: int) -> None:
        """Note a commit in flight, which times out at `deadline_ms`."""
        count, _ = self.pending_offsets.get(partition, (0, 0))
        self.pending_offsets[partition] = (count + 1, deadline_ms)

    def resolve_offset(self, partition: tuple[str, int]) -> None:
        """Note that a commit is durable or refused. At load none is in flight."""
        count, deadline_ms = self.pending_offsets.pop(partition, (0, 0))
        if count > 1:
            self.pending_offsets[partition] = (count - 1, deadline_ms)
