"""Lazy activation of loaded groups.

A node may take over a hundred thousand groups at once. After the log has been read, every group has
the fields that ListGroups shows. Its members, which cost more time, are created when the group is
first used, or by `activate_some`. Until then the group is dormant: its members are in `committed`.

Members begin with full session time-outs. `Group.apply` sets their assignments.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from coordinator.core.classic import rebalance
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.member import ClassicMember, Protocols
from coordinator.core.classic.membership import excuse
from coordinator.core.classic.protocols import subscribed_topics
from coordinator.core.group import GroupState
from coordinator.core.step import Step
from coordinator.core.values.events import GroupActivated, RebalanceCause
from coordinator.core.values.ids import NO_TIME
from coordinator.core.values.rebalance_journal import is_outage
from coordinator.core.values.records import GroupMetadata


class DormantGroups:
    """The loaded groups of a shard that are not active yet."""

    def __init__(self) -> None:
        self.by_id: dict[str, ClassicGroup] = {}
        self._same: dict[Protocols, Protocols] = {}  # Members with equal protocols share one copy.
        self._store_went_back = False

    def restore(
        self, groups: Iterable[ClassicGroup], generation_floor: int, *, store_went_back: bool
    ) -> None:
        """Restore groups from their durable facts; they are dormant at first.

        Args:
            generation_floor: generations up to this one are not used again; 0: see each group's.
            store_went_back: the store has lost commits, which their journals say.
        """
        self._store_went_back = store_went_back
        for group in groups:
            _recall(group, generation_floor)
            self.by_id[group.group_id] = group

    def wake(self, group_id: str, step: Step) -> None:
        """Activate a group, if it is dormant."""
        group = self.by_id.pop(group_id, None)
        if group is not None and group.committed is not None:
            self._add_members(group, group.committed, step)
        if not self.by_id:
            self._same = {}

    def activate_some(self, count: int, step: Step) -> None:
        """Activate up to `count` more groups."""
        for group_id in list(islice(self.by_id, count)):
            self.wake(group_id, step)

    def _add_members(self, group: ClassicGroup, committed: GroupMetadata, step: Step) -> None:
        """Create the members of the last durable generation."""
        name, last_ms = committed.protocol_name, group.last_record_ms
        unseen_signs = 2 if is_outage(step.now_ms - last_ms) else 0
        for stored in committed.members:
            protocols = () if name is None else ((name, stored.metadata),)
            member = ClassicMember(
                stored.member_id,
                instance_id=stored.instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                client_software=stored.client_software,
                rebalance_timeout_ms=stored.rebalance_timeout_ms or stored.session_timeout_ms,
                session_timeout_ms=stored.session_timeout_ms,
                protocols=self._same.setdefault(protocols, protocols),
                now_ms=step.now_ms,
            )
            member.is_new, member.last_call_ms = False, NO_TIME
            member.unseen_signs = unseen_signs
            group.add_member(member)
            excuse(group, member, step)
        step.out.note(GroupActivated(group.group_id, last_ms, self._store_went_back))
        group.leader_id = committed.leader
        group.apply(committed)
        group.subscribed_topics = subscribed_topics(group, step.payloads.topics)
        if len(group.members) > step.config.group_max_size:
            rebalance.prepare(group, RebalanceCause.SIZE_LIMIT, step)


def _recall(group: ClassicGroup, generation_floor: int) -> None:
    """Set the fields that ListGroups shows, and the floor for the next generation."""
    group.generation_floor = max(group.durable_generation + 1, generation_floor)
    committed = group.committed
    if committed is not None:
        group.generation = committed.generation
        group.protocol_type = committed.protocol_type
        group.protocol_name = committed.protocol_name
        group.state_changed_at_ms = committed.state_changed_at_ms
        if committed.members:
            group.state = GroupState.STABLE
