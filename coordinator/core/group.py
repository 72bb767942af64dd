"""What every group has, whichever protocol its members speak: a state, offsets, a manifest.

A kind of group adds its members, and what their protocol needs. Rules that both protocols share
(`offsets`, `expiration`, `log_ends`, `admin`) see no more of a group than this.

Durable facts become true through `Group.apply` alone: for a record that the log has just
acknowledged, and for one that is read back at load. A change that is not acknowledged yet is a
record waiting in the shard, and nowhere else: dropping the record is the roll-back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import ClassVar

from coordinator.core.records import (
    GroupDeleted,
    ManifestStored,
    OffsetCommitted,
    OffsetDeleted,
    Record,
)
from coordinator.core.replies import LogEnd

CONSUMER_PROTOCOL_TYPE = "consumer"


class GroupState(Enum):
    """The value is what people and tools read."""

    EMPTY = "Empty"
    """No members; offsets may remain."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Gathering members: the join phase."""
    AWAITING_SYNC = "CompletingRebalance"
    """A generation exists; its assignment is awaited from the leader, then from the log."""
    STABLE = "Stable"
    """The assignment is durable and in force."""
    DEAD = "Dead"
    """Given up, by deletion or because the shard was unloaded."""


class Group(ABC):
    """A group of any kind."""

    kind: ClassVar[str]
    """As operators read it."""

    __slots__ = (
        "group_id",
        "log_ends",
        "manifest",
        "offsets",
        "pending_offsets",
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
        # Commits on their way to the log, by partition: how many, and when the newest one's time
        # is over.
        self.pending_offsets: dict[tuple[str, int], tuple[int, int]] = {}
        # As members have told, by partition; None: nobody has.
        self.log_ends: dict[tuple[str, int], LogEnd] | None = None
        # Durable facts.
        self.offsets: dict[tuple[str, int], OffsetCommitted] = {}
        self.manifest = b""

    @property
    @abstractmethod
    def member_count(self) -> int:
        """How many members there are, or will be once the group is active."""

    @property
    @abstractmethod
    def is_deserted(self) -> bool:
        """True if there is no member, and nobody who may become one with an id it was given."""

    @property
    def is_vacant(self) -> bool:
        """True if nothing is left that would be missed: no member, offset or commit."""
        return self.is_deserted and not self.offsets and not self.pending_offsets

    def is_subscribed(self, topic: str) -> bool:
        """True if a member reads `topic`; of a consumer group that cannot be read, assume it."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    # --- The log ---

    def apply(self, record: Record) -> None:
        """Make an acknowledged record true; live and at load.

        What members are doing meanwhile (parked calls, states of a rebalance) is not in any record
        and is not touched. The machine owns the table of groups: it takes a deleted one out.
        """
        match record:
            case OffsetCommitted():
                self.offsets[(record.topic, record.partition)] = record
                self.settle_offset((record.topic, record.partition))
            case ManifestStored():
                self.manifest = record.manifest
            case OffsetDeleted():
                self.offsets.pop((record.topic, record.partition), None)
                if self.log_ends:
                    self.log_ends.pop((record.topic, record.partition), None)
            case GroupDeleted():
                self.offsets.clear()
                self.manifest = b""
                self._apply_own(record)
            case _:
                self._apply_own(record)

    @abstractmethod
    def _apply_own(self, record: Record) -> None:
        """What a record means to the facts that groups of this kind alone have."""

    def drop(self, record: Record) -> None:
        """Forget a record that the log has refused. That is the whole roll-back."""
        if isinstance(record, OffsetCommitted):
            self.settle_offset((record.topic, record.partition))

    @abstractmethod
    def records(self) -> list[Record]:
        """The records that bring the durable facts back, and nothing else.

        They are the very objects the group holds: nothing is copied. Recordings compare them with
        those of another run, so their order stays.
        """

    def await_offset(self, partition: tuple[str, int], deadline_ms: int) -> None:
        """A commit of `partition` is on its way to the log, and answered by then."""
        count, _ = self.pending_offsets.get(partition, (0, 0))
        self.pending_offsets[partition] = (count + 1, deadline_ms)

    def settle_offset(self, partition: tuple[str, int]) -> None:
        """A commit of `partition` has arrived, or never will. At load none was awaited."""
        count, deadline_ms = self.pending_offsets.pop(partition, (0, 0))
        if count > 1:
            self.pending_offsets[partition] = (count - 1, deadline_ms)
