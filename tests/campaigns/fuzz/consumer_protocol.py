"""Kafka's consumer protocol: bytes between members, of which the coordinator reads the topics."""

from coordinator.assignors import Subscription, TopicPartition
from coordinator.assignors.consumer_protocol import (
    Assignment,
    ConsumerProtocolError,
    PreviousAssignment,
    decode_assignment,
    decode_generation,
    decode_previous_assignment,
    decode_subscription,
    encode_assignment,
    encode_generation,
    encode_previous_assignment,
    encode_subscription,
    subscribed_topics,
)
from coordinator.runtime.payloads import PAYLOADS

PARTITIONS = (TopicPartition("orders", 0), TopicPartition("orders", 7), TopicPartition("ö", 2))


def target(data: bytes) -> None:
    for decode, encode in (
        (decode_subscription, encode_subscription),
        (decode_assignment, encode_assignment),
        (decode_previous_assignment, encode_previous_assignment),
        (decode_generation, encode_generation),
    ):
        try:
            value = decode(data)
        except ConsumerProtocolError:
            continue
        # Written again it is sorted and of the newest version, and stays what it is.
        written = encode(value)
        assert encode(decode(written)) == written
    try:
        topics = subscribed_topics(data)
    except ConsumerProtocolError:
        assert PAYLOADS.topics(data) is None
    else:
        assert PAYLOADS.topics(data) == topics
    PAYLOADS.partitions(data)


def seeds():
    for version in range(4):
        yield encode_subscription(
            Subscription(
                topics=("orders", "ö"),
                user_data=b"\0\1",
                owned_partitions=PARTITIONS,
                generation=5,
                rack="a",
            ),
            version,
        )
        yield encode_assignment(Assignment(PARTITIONS, b"more"), version)
    yield encode_subscription(Subscription(topics=()))
    yield encode_previous_assignment(PreviousAssignment(PARTITIONS, 3))
    yield encode_generation(2**31 - 1)
