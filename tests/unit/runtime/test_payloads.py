"""Payloads are read up to a bound: a step that reads long ones delays other groups."""

from __future__ import annotations

import sys

from coordinator.assignors.base import Subscription
from coordinator.assignors.consumer_protocol import (
    Assignment,
    encode_assignment,
    encode_subscription,
)
from coordinator.assignors.partitions import TopicPartition
from coordinator.core.journal.last_work import OWNED_MAX
from coordinator.runtime.payloads import REMEMBERED_BYTES, TOPICS_MAX, read_partitions, read_topics


def test_a_subscription_of_too_many_topics_is_as_one_that_cannot_be_read():
    names = tuple(f"{n}" for n in range(TOPICS_MAX + 1))
    assert read_topics(encode_subscription(Subscription(names))) is None
    found = read_topics(encode_subscription(Subscription(names[1:])))
    assert found is not None
    assert len(found) == TOPICS_MAX


def test_an_assignment_of_too_many_partitions_is_as_one_that_cannot_be_read():
    everything = [TopicPartition("t", n) for n in range(OWNED_MAX + 1)]
    assert read_partitions(encode_assignment(Assignment(tuple(everything)))) is None
    found = read_partitions(encode_assignment(Assignment(tuple(everything[1:]))))
    assert found is not None
    assert len(found) == OWNED_MAX


def test_many_empty_topics_in_an_assignment_are_not_read_either():
    topics = b"".join(b"\0\1a\0\0\0\0" for _ in range(OWNED_MAX + 1))
    data = b"\0\0" + (OWNED_MAX + 1).to_bytes(4, "big") + topics + b"\xff\xff\xff\xff"
    assert read_partitions(data) is None


def subscription(topic: str) -> bytes:
    return encode_subscription(Subscription(topics=(topic,)))


def test_a_short_payload_is_kept_and_a_long_one_is_let_go_of():
    short, long = subscription("asked for here alone"), subscription("t" * REMEMBERED_BYTES)
    before = sys.getrefcount(short), sys.getrefcount(long)
    assert read_topics(short) == {"asked for here alone"}
    assert read_topics(long) == {"t" * REMEMBERED_BYTES}
    assert sys.getrefcount(short) > before[0]
    assert sys.getrefcount(long) == before[1]
