"""A Kafka topic, read with `assign()`: our group divides its partitions, not a group of Kafka's.
Needs the extra `kafka` (confluent-kafka).
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from coordinator.sources.base import NothingFound, conformed
from coordinator.sources.readable import GroupReadable

CALL_S = 30.0
PATIENCE_S = 60.0
"""Time that a read waits for the next message."""
MESSAGES_A_BATCH = 4_096

_local = threading.local()


@dataclass(frozen=True)
class KafkaTopic(GroupReadable):
    """`Source` over a Kafka topic. Offsets are Kafka's own.

    Rows: partition, offset, timestamp (milliseconds, UTC; null if the broker has none), key,
    value, headers (a list of key and value). Transaction markers and messages that were compacted
    away are gaps.

    Args:
        brokers: HOST:PORT, with commas between. settings: librdkafka's, as pairs.
        name: the topic's name in the group, if it is another.
    """

    brokers: str
    kafka_topic: str
    settings: tuple[tuple[str, str], ...] = ()
    name: str | None = None
    given_schema: Any = None

    @property
    def topic(self) -> str:
        return self.name or self.kafka_topic

    def partitions(self) -> list[int]:
        """See `Source`.

        Raises:
            NothingFound: there is no such topic.
        """
        metadata = self._consumer().list_topics(self.kafka_topic, timeout=CALL_S)
        topic = metadata.topics[self.kafka_topic]
        if topic.error is not None:
            raise NothingFound(
                f"Kafka has no topic {self.kafka_topic} at {self.brokers} ({topic.error.str()}): "
                "create it, or correct the source's name"
            )
        return sorted(topic.partitions)

    def begin_offset(self, partition: int) -> int:
        return self._watermarks(partition)[0]

    def end_offset(self, partition: int) -> int:
        return self._watermarks(partition)[1]

    def schema(self) -> Any:
        return _schema() if self.given_schema is None else self.given_schema

    def with_schema(self, schema: Any) -> KafkaTopic:
        """See `Source`. Columns are chosen by name and cast."""
        return replace(self, given_schema=schema)

    def read(self, partition: int, begin: int, end: int) -> Iterator[Any]:
        """See `Source`.

        Raises:
            TimeoutError: no message for a minute. confluent_kafka.KafkaException: refused.
        """
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        schema = self.schema()
        consumer = self._consumer()
        topic_partition = TopicPartition(self.kafka_topic, partition, begin)
        consumer.assign([topic_partition])
        position, quiet_since = begin, time.monotonic()
        while position < end:
            wanted = min(end - position, MESSAGES_A_BATCH)
            messages = []
            for message in consumer.consume(wanted, timeout=1.0):
                if message.error() is None:
                    messages.append(message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    position = end  # The rest up to the end are gaps.
                else:
                    raise KafkaException(message.error())
            rows = [message for message in messages if message.offset() < end]
            if rows:
                yield conformed(_batch(rows), schema)
            if messages:
                position = max(position, messages[-1].offset() + 1)
                quiet_since = time.monotonic()
            # After a gap the consumer's position is ahead of its last message.
            position = max(position, consumer.position([topic_partition])[0].offset)
            if time.monotonic() - quiet_since > PATIENCE_S:
                raise TimeoutError(f"{self.kafka_topic}-{partition}: no message at {position}")

    # --- Inside ---

    def _watermarks(self, partition: int) -> tuple[int, int]:
        from confluent_kafka import TopicPartition

        topic_partition = TopicPartition(self.kafka_topic, partition)
        low, high = self._consumer().get_watermark_offsets(topic_partition, timeout=CALL_S)
        return low, high

    def _consumer(self) -> Any:
        """The consumer of this thread and process: each follows one assignment at a time."""
        from confluent_kafka import Consumer

        consumers = _local.__dict__.setdefault("consumers", {})
        key = (os.getpid(), self.brokers, self.settings)
        if key not in consumers:
            consumers[key] = Consumer(
                {
                    "auto.offset.reset": "error",
                    "isolation.level": "read_committed",
                    # By default a task that has known a topic would wait up to five minutes for a
                    # partition that appeared since, longer than a read's patience.
                    "topic.metadata.refresh.interval.ms": 10_000,
                    **dict(self.settings),
                    "bootstrap.servers": self.brokers,
                    "group.id": "assigned-elsewhere",  # librdkafka asks for one, and joins none.
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                }
            )
        return consumers[key]


@functools.cache
def _schema() -> Any:
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.schema(
        [
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms", "UTC")),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(header)),
        ]
    )


def _batch(messages: list[Any]) -> Any:
    import pyarrow as pa
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

    def timestamp(message: Any) -> int | None:
        kind, at_ms = message.timestamp()
        return None if kind == TIMESTAMP_NOT_AVAILABLE else at_ms

    def headers(message: Any) -> list[dict[str, Any]] | None:
        message_headers = message.headers()
        return message_headers and [{"key": key, "value": value} for key, value in message_headers]

    columns = [
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        [timestamp(message) for message in messages],
        [message.key() for message in messages],
        [message.value() for message in messages],
        [headers(message) for message in messages],
    ]
    schema = _schema()
    arrays = [pa.array(v, field.type) for v, field in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)
