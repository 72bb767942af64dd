"""Limits on concurrent hand-offs opened for balancing.

At most a tenth of all partitions, 50 at most and 1 at least, are in DRAIN for balancing; and each
receiving member prepares two at most, not counting those for which it is ready. Leavers, and
partitions that their holder may not keep, are never held back and do not count.

What was opened for balancing is remembered in `Planning.balancing`. A new owner of the shard does
not know it, and counts all open hand-offs whose holder does not leave.
"""

from __future__ import annotations

from coordinator.core.sessions.group import SessionGroup
from coordinator.core.values.ids import TopicPartition
from coordinator.core.values.policy import Mode
from coordinator.core.values.records import Phase

MOST_DRAINING = 50
"""Partitions that balancing takes from their holders at a time, at most."""
SHARE_DRAINING = 0.1
"""The same, as a share of all partitions."""
PREPARING_A_MEMBER = 2
"""Partitions that balancing has one member prepare at a time."""


class Budget:
    """Hand-offs that balancing may still open. Linear in those it has open.

    draining: partitions that may go into DRAIN beside those that are there.
    """

    __slots__ = ("_preparing", "draining", "is_warm", "ready")

    def __init__(self, group: SessionGroup) -> None:
        self.draining = max(1, min(MOST_DRAINING, int(group.planning.partitions * SHARE_DRAINING)))
        self.ready: list[TopicPartition] = []
        """Partitions whose successor is ready, which wait for room to be drained."""
        self.is_warm = group.policy.mode is Mode.WARM
        self._preparing: dict[str, int] = {}
        balancing = group.planning.balancing
        for partition, target in list(balancing.items()):
            self._count(group, partition, target)

    def _count(self, group: SessionGroup, partition: TopicPartition, target: str) -> None:
        open_now = group.handoff(partition)
        if _is_exempt(group, partition):
            del group.planning.balancing[partition]
        elif open_now is None and group.partition_state(partition).writes_pending:
            self.take(target)
        elif open_now is None:
            del group.planning.balancing[partition]
        elif open_now.phase is Phase.DRAIN:
            self.draining -= 1
        elif open_now.phase is Phase.PREPARE and not open_now.is_ready:
            self._preparing[open_now.successor] = self._preparing.get(open_now.successor, 0) + 1
        elif open_now.phase is Phase.PREPARE and group.partition_state(partition).writes_pending:
            self.draining -= 1  # Its DRAIN is on its way.
        elif open_now.phase is Phase.PREPARE:
            self.ready.append(partition)

    def admits(self, target: str) -> bool:
        """True if one more partition may begin its way to `target`."""
        if self.is_warm:
            return self._preparing.get(target, 0) < PREPARING_A_MEMBER
        return self.draining > 0

    def take(self, target: str) -> None:
        """Count one more partition that begins its way to `target`."""
        if self.is_warm:
            self._preparing[target] = self._preparing.get(target, 0) + 1
        else:
            self.draining -= 1


def may_drain(group: SessionGroup, partition: TopicPartition) -> bool:
    """True if a partition whose successor is ready may be drained now."""
    return (
        partition not in group.planning.balancing
        or _is_exempt(group, partition)
        or Budget(group).draining > 0
    )


def restore(group: SessionGroup) -> None:
    """Count what was open when the shard was taken over as opened for balancing."""
    for partition, open_now in group.open_handoffs():
        group.planning.balancing[partition] = open_now.successor


def _is_exempt(group: SessionGroup, partition: TopicPartition) -> bool:
    """True if its holder leaves: such hand-offs are not limited."""
    member = group.members.get(group.holder(partition))
    return member is not None and (member.record.leaves or member.must_drain)
