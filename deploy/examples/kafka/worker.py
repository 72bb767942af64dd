"""A worker with confluent-kafka. It handles the rows of its partitions, and commits each.

python worker.py [BOOTSTRAP]
"""

from __future__ import annotations

import signal
import sys

from confluent_kafka import Consumer, KafkaException, TopicPartition

ROWS = 20
"""Rows of a partition: numbers here; yours come from a file, a table or a service."""


def main(bootstrap: str) -> None:
    """Work until SIGINT or SIGTERM."""
    positions: dict[int, int] = {}

    def take(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in consumer.committed(partitions, timeout=10):
            positions[each.partition] = max(each.offset, 0)
        print("python works on", *sorted(positions), flush=True)

    def give_back(_: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            positions.pop(each.partition, None)

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "orders",
        "client.id": "python",
        "partition.assignment.strategy": "roundrobin",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["orders"], on_assign=take, on_revoke=give_back, on_lost=give_back)
    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda stop, _: stopping.append(stop))
    while not stopping:
        consumer.poll(0.1)  # Assignments; the topic itself has no rows here.
        for partition, position in list(positions.items()):
            if position == ROWS:
                continue
            # Handle the row here; then it is done.
            positions[partition] = position + 1
            try:
                done = TopicPartition("orders", partition, position + 1)
                consumer.commit(offsets=[done], asynchronous=False)
            except KafkaException as error:
                # Somebody else has the partition by now, and does the row again.
                print(error, file=sys.stderr)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:] or ["127.0.0.1:9092"])
