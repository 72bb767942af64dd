"""Groups that were loaded come to life.

A hundred thousand groups are taken over at once. What a list of groups shows is set for all of
them when the log has been read; their members cost more time, and wait for somebody to ask for
the group, or for `activate_some`. Until then the group is dormant: its members are in `committed`.

Members begin with full session time-outs. What they hold, `Group.apply` gives them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from coordinator.core.classic import rebalance
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.member import Member, Protocols
from coordinator.core.classic.membership import reset_session
from coordinator.core.classic.subscriptions import TopicReader, subscribed_topics
from coordinator.core.config import GroupConfig
from coordinator.core.events import RebalanceCause
from coordinator.core.group import GroupState
from coordinator.core.outcome import Outcome
from coordinator.core.records import GroupMetadata


class DormantGroups:
    """The groups of a shard that were loaded and have not come to life yet."""

    def __init__(self, config: GroupConfig, read_topics: TopicReader) -> None:
        self.by_id: dict[str, ClassicGroup] = {}
        self._config = config
        self._read_topics = read_topics
        self._same: dict[Protocols, Protocols] = {}  # What members have in common is kept once.

    def restore(self, groups: Iterable[ClassicGroup]) -> None:
        """Take groups up where their durable facts leave them; they are dormant at first."""
        for group in groups:
            _recall(group)
            self.by_id[group.group_id] = group

    def wake(self, group_id: str, now_ms: int, out: Outcome) -> None:
        """Bring a group to life, if it is dormant."""
        group = self.by_id.pop(group_id, None)
        if group is not None and group.committed is not None:
            self._add_members(group, group.committed, now_ms, out)
        if not self.by_id:
            self._same = {}

    def activate_some(self, count: int, now_ms: int, out: Outcome) -> None:
        """Bring up to `count` more groups to life."""
        for group_id in list(islice(self.by_id, count)):
            self.wake(group_id, now_ms, out)

    def _add_members(
        self, group: ClassicGroup, committed: GroupMetadata, now_ms: int, out: Outcome
    ) -> None:
        """Members are as the last durable generation had them."""
        name = committed.protocol_name
        for stored in committed.members:
            protocols = () if name is None else ((name, stored.metadata),)
            member = Member(
                stored.member_id,
                instance_id=stored.instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                rebalance_timeout_ms=stored.rebalance_timeout_ms or stored.session_timeout_ms,
                session_timeout_ms=stored.session_timeout_ms,
                protocols=self._same.setdefault(protocols, protocols),
                now_ms=now_ms,
            )
            member.is_new = False
            group.add_member(member)
            reset_session(group, member, now_ms, out)
        group.leader_id = committed.leader
        group.apply(committed)
        group.subscribed_topics = subscribed_topics(group, self._read_topics)
        if len(group.members) > self._config.group_max_size:
            rebalance.prepare(group, RebalanceCause.SIZE_LIMIT, now_ms, out)


def _recall(group: ClassicGroup) -> None:
    """What a list of groups shows, and the generation: a lost one is not used again."""
    group.generation_floor = group.durable_generation + 1
    committed = group.committed
    if committed is not None:
        group.generation = committed.generation
        group.protocol_type = committed.protocol_type
        group.protocol_name = committed.protocol_name
        group.state_changed_at_ms = committed.state_changed_at_ms
        if committed.members:
            group.state = GroupState.STABLE
