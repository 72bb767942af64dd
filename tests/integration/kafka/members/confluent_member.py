"""A member with confluent-kafka (librdkafka)."""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException, TopicPartition
from member_lines import Orders, Ownership, option, options


def main() -> None:
    """Poll until told to leave."""
    owned, orders = Ownership(), Orders()
    settings = {
        "bootstrap.servers": option("bootstrap"),
        "group.id": option("group"),
        "client.id": option("client_id"),
        "session.timeout.ms": option("session_ms"),
        "max.poll.interval.ms": option("rebalance_ms"),
        "heartbeat.interval.ms": 300,
        "partition.assignment.strategy": option("assignor"),
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 2_000,
        "reconnect.backoff.max.ms": 500,
        "log_level": 3,
        **options().get("more", {}),
    }
    if instance := option("instance"):
        settings["group.instance.id"] = instance
    consumer = Consumer(settings)

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        owned.add((p.topic, p.partition) for p in partitions)

    def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
        owned.remove((p.topic, p.partition) for p in partitions)

    consumer.subscribe(option("topics"), on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while (order := orders.next()) != "leave":
        if order == "commit":
            offsets = [TopicPartition(t, p, offset) for (t, p), offset in owned.offsets()]
            try:
                consumer.commit(offsets=offsets, asynchronous=False)
                owned.committed()
            except KafkaException as error:
                print(error, file=sys.stderr, flush=True)
                orders.again(order)
        message = consumer.poll(0.1)
        if message is not None and message.error():
            print(message.error(), file=sys.stderr, flush=True)
    consumer.close()


if __name__ == "__main__":
    main()
