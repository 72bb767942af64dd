"""Revocations under way: partitions that a member holds on to until its owner is done.

Each partition has a deadline of its own, which a further rebalance does not move. With a
cooperative assignor the member takes part in rebalances meanwhile, still as the holder; one of them
may assign a partition to it again (`returned`). Its holding ends all the same, since the owner was
told so, and another one begins.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from coordinator.assignors import TopicPartition

_NOTHING: frozenset[TopicPartition] = frozenset()


@dataclass(slots=True)
class Revocations:
    """Partitions that are being revoked, with their deadlines in milliseconds."""

    _until_ms: dict[TopicPartition, int] = field(default_factory=dict)
    _notified: frozenset[TopicPartition] = _NOTHING
    returned: frozenset[TopicPartition] = _NOTHING
    """Partitions that the newest assignment gives to this member again."""

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """All that are under way."""
        return frozenset(self._until_ms)

    @property
    def notified(self) -> frozenset[TopicPartition]:
        """Partitions that the owner was handed."""
        return self._notified.intersection(self._until_ms)

    def begin(self, partitions: Collection[TopicPartition], until_ms: int) -> None:
        self._until_ms |= dict.fromkeys(partitions, until_ms)

    def hand_out(self) -> None:
        """Mark all as handed out."""
        self._notified = self.partitions

    def end(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """End the revocation of partitions; returns those that are to be held again."""
        for partition in partitions:
            self._until_ms.pop(partition, None)
        returned = self.returned.intersection(partitions)
        self.returned -= returned
        return returned

    def end_all(self) -> None:
        """End all of them, since everything is lost."""
        self._until_ms = {}
        self._notified = self.returned = _NOTHING

    def overdue(self, now_ms: int) -> frozenset[TopicPartition]:
        """Partitions whose deadline has passed."""
        return frozenset(p for p, until_ms in self._until_ms.items() if now_ms >= until_ms)

    def deadline_of(self, partition: TopicPartition) -> int | None:
        """Deadline of a partition; None: it is not being revoked."""
        return self._until_ms.get(partition)

    def next_deadline(self) -> int | None:
        """Earliest deadline; None: nothing is being revoked."""
        return min(self._until_ms.values(), default=None)
