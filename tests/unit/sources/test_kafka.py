"""A Kafka topic as a source, against librdkafka's own brokers on real sockets."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from coordinator.sources import kafka, open_source, partitions_of
from tests.kit.patience import HANG_S

MESSAGES = 300


@pytest.fixture(scope="module")
def brokers():
    producer = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 2})
    for n in range(MESSAGES):
        producer.produce(
            "flights", key=f"k{n}", value=str(n), partition=n % 2, timestamp=1_000 + n,
            headers={"n": str(n)},
        )  # fmt: skip
    assert producer.flush(HANG_S) == 0
    listed = producer.list_topics(timeout=HANG_S).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in listed)
    # The brokers live in the producer; consumers that outlive it would look for them for ever.
    del kafka._local.consumers, producer


def test_a_range_of_a_kafka_partition_is_read_by_its_offsets(brokers):
    source = pickle.loads(pickle.dumps(open_source(f"kafka://{brokers}/flights")))
    assert source.partitions()[:2] == [0, 1]
    assert (source.begin_offset(1), source.end_offset(1)) == (0, MESSAGES // 2)
    table = pa.Table.from_batches(source.read(1, 20, 120), source.schema())
    assert table["offset"].to_pylist() == list(range(20, 120))
    row = table.to_pylist()[0]
    assert (row["partition"], row["key"], row["value"]) == (1, b"k41", b"41")
    assert row["headers"] == [{"key": "n", "value": b"41"}]
    assert row["timestamp"].timestamp() == 1.041


def test_reading_goes_on_elsewhere_and_ends_at_the_end(brokers):
    source = open_source(f"kafka://{brokers}/flights").with_schema(
        pa.schema([("value", pa.string())])
    )
    for partition, begin, end in ((0, 140, 150), (1, 0, 3), (0, 10, 12)):
        batches = source.read(partition, begin, end)
        values = [int(value) for batch in batches for value in batch["value"].to_pylist()]
        assert values == [2 * n + partition for n in range(begin, end)]
    assert list(source.read(0, 5, 5)) == []


def test_a_topic_without_messages_is_there_and_one_that_is_not_is_refused_by_name(brokers):
    source = open_source(f"kafka://{brokers}/flights")
    quiet = partitions_of(source)[-1]
    assert source.begin_offset(quiet) == source.end_offset(quiet) == 0
    with pytest.raises(LookupError, match="Kafka has no topic flihgts at 127"):
        partitions_of(open_source(f"kafka://{brokers}/flihgts"), allow_empty=True)


def test_settings_of_librdkafka_are_taken_and_wrong_ones_refused(brokers):
    from confluent_kafka import KafkaException

    assert open_source(f"kafka://{brokers}/flights#client.id=x").end_offset(0) == MESSAGES // 2
    with pytest.raises(KafkaException, match="No such configuration property"):
        open_source(f"kafka://{brokers}/flights#clint.id=x").end_offset(0)
