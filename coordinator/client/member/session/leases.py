"""The member's side of leases: until when it may act.

A member counts from when it sent the heartbeat that was acknowledged. Everything is one comparison
at the point of use: no timer that comes late can make a partition valid for longer.

    renewed ──── 2/3 ──────────── 9/10 ───── 1: the coordinator may have given it to another one
      in use │ no new work │ suspended
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from coordinator.assignors import TopicPartition

NEVER = -1


@dataclass(slots=True)
class Lease:
    """Lease of one session. Milliseconds of the member's own clock.

    renewed_ms: when the newest heartbeat or Attach that was acknowledged was sent. frozen: of each
    partition that acknowledgements do not renew any more, its last renewal. sent: when heartbeats
    were sent, by their numbers; those that may still renew something.
    """

    length_ms: int
    renewed_ms: int = NEVER
    frozen: dict[TopicPartition, int] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)
    acknowledged: int = 0
    """Number of the newest heartbeat that was acknowledged."""

    @property
    def doubt_ms(self) -> int:
        """Age from which no new work is taken in."""
        return -(-2 * self.length_ms // 3)

    @property
    def suspended_ms(self) -> int:
        """Age from which no effect may leave the process."""
        return 9 * self.length_ms // 10

    def age(self, partition: TopicPartition, now_ms: int) -> int:
        """Time since the last renewal of a partition."""
        return now_ms - self.frozen.get(partition, self.renewed_ms)

    def ends_ms(self, partition: TopicPartition) -> int:
        """Time from which no effect of a partition may leave the process."""
        if self.renewed_ms == NEVER:
            return 0
        return self.frozen.get(partition, self.renewed_ms) + self.suspended_ms

    def is_valid(self, partition: TopicPartition, now_ms: int) -> bool:
        """True if effects may leave the process."""
        return now_ms < self.ends_ms(partition)

    def takes_work(self, partition: TopicPartition, now_ms: int) -> bool:
        """True if new work may be begun."""
        return self.is_valid(partition, now_ms) and self.age(partition, now_ms) < self.doubt_ms

    def is_fresh(self, sent_ms: int, now_ms: int) -> bool:
        """True if the answer to a message that was sent then may renew."""
        return now_ms - sent_ms < self.suspended_ms

    def send(self, number: int, now_ms: int) -> None:
        """A heartbeat is sent; those that are too old to renew anything are forgotten."""
        for old in [
            sent_id for sent_id, at_ms in self.sent.items() if now_ms - at_ms > self.length_ms
        ]:
            del self.sent[old]
        self.sent[number] = now_ms

    def acknowledge(self, number: int, expiring: Iterable[TopicPartition], now_ms: int) -> bool:
        """Take in an acknowledgement.

        Returns:
            False if it came too late to renew anything.
        """
        for partition in expiring:
            self.frozen.setdefault(partition, self.renewed_ms)
        if number <= self.acknowledged:
            return True  # It moves nothing back.
        self.acknowledged = number
        if now_ms - self.renewed_ms >= self.suspended_ms:
            return False
        self.confirm(self.sent.get(number, NEVER))
        return True

    def confirm(self, sent_ms: int) -> None:
        """The coordinator has answered what was sent then."""
        self.renewed_ms = max(self.renewed_ms, sent_ms)

    def begin(self, length_ms: int, *, is_new: bool) -> None:
        """A stream has attached. `is_new`: in a new session, whose heartbeats count from 1."""
        self.length_ms = length_ms
        if is_new:
            self.acknowledged = 0
            self.sent.clear()

    def forget(self, partition: TopicPartition) -> None:
        """A partition is held no more, or under a new token."""
        self.frozen.pop(partition, None)
