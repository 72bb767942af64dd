"""Partitions in session messages: ranges to single partitions, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from coordinator.assignors import TopicPartition
from coordinator.client.member.ledger import UNKNOWN_OFFSET
from coordinator.v1 import session_pb2 as pb


class Ordered(NamedTuple):
    """An order about one partition. `token` 0: none. Offsets -1: unknown."""

    partition: TopicPartition
    order: pb.Orders.Order.ValueType
    token: int
    handoff_id: int
    remaining_ms: int
    offset: int
    position: int


def orders_of(pages: Iterable[pb.Orders]) -> Iterator[Ordered]:
    """The orders of these pages, one a partition."""
    for page in pages:
        for topic in page.topics:
            for partitions in topic.ranges:
                yield from _orders_of(topic.name, partitions)


def _orders_of(topic: str, partitions: pb.Orders.Range) -> Iterator[Ordered]:
    first, offsets = partitions.partitions.first, partitions.committed_offsets
    token = partitions.partitions.first_token
    position = partitions.position if partitions.HasField("position") else UNKNOWN_OFFSET
    for number in range(partitions.partitions.last - first + 1):
        yield Ordered(
            TopicPartition(topic, first + number),
            partitions.order,
            token + number if token else 0,
            partitions.handoff_id,
            partitions.remaining_ms,
            offsets[number] if number < len(offsets) else UNKNOWN_OFFSET,
            position,
        )


def partitions_of(topics: Iterable[pb.HeldTopic]) -> Iterator[TopicPartition]:
    """Partitions that a message names, without their tokens."""
    for topic in topics:
        for span in topic.partitions:
            for partition in range(span.first, span.last + 1):
                yield TopicPartition(topic.name, partition)


def held_topics(tokens: Mapping[TopicPartition, int]) -> list[pb.HeldTopic]:
    """A held set; consecutive partitions under consecutive tokens share a range."""
    by_topic: dict[str, pb.HeldTopic] = {}
    for partition in sorted(tokens):
        topic, number, token = partition.topic, partition.partition, tokens[partition]
        ranges = by_topic.setdefault(topic, pb.HeldTopic(name=topic)).partitions
        if ranges and number == ranges[-1].last + 1:
            last = ranges[-1]
            if token == last.first_token + number - last.first:
                last.last = number
                continue
        ranges.add(first=number, last=number, first_token=token)
    return list(by_topic.values())
