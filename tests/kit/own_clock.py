"""A member's own clock: which partitions it may work on, by what it has sent and heard.

The rule of members, told in a few lines of its own: a partition is worked on until nine tenths of a
lease after the newest heartbeat was sent whose acknowledgement did not list it. With it a scenario
sees whether somebody else is granted a partition while its last holder may still act.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator.core.values.ids import TopicPartition
from coordinator.core.values.session_messages import HeartbeatAck, Order, OrderedPartition, Orders


class OwnClock:
    """Holdings of one process as it believes, and since when they were confirmed."""

    def __init__(self) -> None:
        self._sent: dict[int, int] = {}
        self._newest_ms = 0
        self._renewed: dict[TopicPartition, int] = {}
        self._tokens: dict[TopicPartition, int] = {}
        self._ended: set[tuple[TopicPartition, int]] = set()
        self._not_renewed: set[tuple[TopicPartition, int]] = set()
        self.suspended_ms = 9_000

    def sends(self, number: int, now_ms: int) -> None:
        """A heartbeat, or an Attach (number 0 of its stream), is sent."""
        self._sent[number] = now_ms

    def attached(self, lease_ms: int) -> None:
        """The Attach was acknowledged."""
        self.suspended_ms = lease_ms * 9 // 10
        self._newest_ms = self._sent[0]

    def acknowledged(self, ack: HeartbeatAck, now_ms: int) -> None:
        """A heartbeat was acknowledged."""
        sent_ms = self._sent.get(ack.number, 0)
        for partition, token in self._tokens.items():
            if partition in ack.expiring:
                self._not_renewed.add((partition, token))
            elif (partition, token) not in self._not_renewed and self._is_valid(partition, now_ms):
                self._renewed[partition] = max(self._renewed[partition], sent_ms)
        self._newest_ms = max(self._newest_ms, sent_ms)

    def hears(self, message: Orders, orders: Mapping[TopicPartition, OrderedPartition]) -> None:
        """Take a message in; `orders`: all that count from now on."""
        is_answer = message.based_on < 0
        sent_ms = self._sent.get(max(message.answers, 0), 0) if is_answer else self._newest_ms
        for partition, order in orders.items():
            if order.order is Order.LOST:
                self._ended.add((partition, order.token))
            if self._tokens.get(partition) != order.token:
                self._renewed[partition] = max(sent_ms, self._newest_ms)
            elif is_answer and (partition, order.token) not in self._not_renewed:
                self._renewed[partition] = max(self._renewed[partition], sent_ms)
        self._tokens = {
            partition: order.token for partition, order in orders.items() if order.token
        }

    def stops(self, partitions: Iterable[TopicPartition]) -> None:
        """The process has stopped to work on partitions."""
        self._ended |= {
            (partition, self._tokens[partition])
            for partition in partitions
            if partition in self._tokens
        }

    def stops_all(self) -> None:
        """The process has stopped to work at all."""
        self.stops(tuple(self._tokens))

    def works_on(self, partition: TopicPartition, now_ms: int) -> bool:
        """True if it may have an effect on a partition."""
        token = self._tokens.get(partition)
        if token is None:
            return False
        return (partition, token) not in self._ended and self._is_valid(partition, now_ms)

    def facts(self) -> tuple[object, ...]:
        """All that decides what may be worked on, for comparisons of states."""
        renewed = {partition: self._renewed[partition] for partition in self._tokens}
        ended = {each for each in self._ended if self._tokens.get(each[0]) == each[1]}
        listed = {each for each in self._not_renewed if self._tokens.get(each[0]) == each[1]}
        return renewed, self._tokens, ended, listed, self._newest_ms

    def _is_valid(self, partition: TopicPartition, now_ms: int) -> bool:
        return now_ms - self._renewed[partition] < self.suspended_ms
