"""The groups of a shard: creation by records, removal, snapshots and unloading."""

from __future__ import annotations

from collections import Counter

from coordinator.core.classic import membership
from coordinator.core.classic.dormant import DormantGroups
from coordinator.core.classic.group import ClassicGroup, MembersByHost, ParkedCalls
from coordinator.core.classic.subscriptions import TopicReader
from coordinator.core.config import GroupConfig
from coordinator.core.errors import ErrorCode
from coordinator.core.group import GroupState
from coordinator.core.outcome import Outcome
from coordinator.core.records import GroupDeleted, OffsetDeleted, Record


class GroupTable:
    """State of a `GroupMachine`: all groups of a shard."""

    def __init__(self, config: GroupConfig, read_topics: TopicReader) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.parked_calls: ParkedCalls = {}
        self.members_by_host: MembersByHost = Counter()
        self._dormant = DormantGroups(config, read_topics)
        self._dormant_by_id = self._dormant.by_id  # The same dict: every heartbeat asks it.

    def apply(self, record: Record, now_ms: int) -> None:
        """Apply an acknowledged record; it creates its group if necessary."""
        group = self.groups.get(record.group_id)
        if group is None:
            if isinstance(record, GroupDeleted | OffsetDeleted):
                return
            group = self._new_group(record.group_id, now_ms)
            self.groups[record.group_id] = group
        group.apply(record)
        if isinstance(record, GroupDeleted) and group.state is GroupState.EMPTY:
            # A group that was joined while its deletion was in flight stays.
            if group.is_vacant:
                del self.groups[record.group_id]

    def drop(self, record: Record) -> None:
        """Roll back a record that the log has refused."""
        group = self.groups.get(record.group_id)
        if group is not None:
            group.drop(record)

    def restore(self) -> None:
        """Restore all groups from their durable facts. They are dormant at first."""
        self._dormant.restore(self.groups.values())

    @property
    def dormant_groups(self) -> int:
        """Number of loaded groups that have not been activated yet."""
        return len(self._dormant_by_id)

    def records(self) -> list[Record]:
        """Return records that restore all durable facts of all groups."""
        return [record for group in self.groups.values() for record in group.records()]

    def unload(self, error: ErrorCode, out: Outcome) -> None:
        """Answer every parked call with `error` and forget all groups."""
        for group in self.groups.values():
            membership.give_up(group, error, out)
        self.groups.clear()
        self.members_by_host.clear()
        self._dormant_by_id.clear()

    def _new_group(self, group_id: str, now_ms: int) -> ClassicGroup:
        """Create a group; the caller adds it to the table."""
        return ClassicGroup(group_id, self.parked_calls, self.members_by_host, now_ms)
