"""Queries of different topics in one group: each row is read once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator.spark import streaming
from coordinator.spark.stream import ConsumerGroupSource
from tests.integration.spark.test_files_stream import given, server
from tests.integration.waiting import wait_until
from tests.kit.patience import HANG_S

__all__ = ["server"]
ROWS = 50


@pytest.fixture
def topics(server, tmp_path):
    """Options of two topics, of two and five partitions."""
    for topic, partitions in (("t", 2), ("u", 5)):
        (tmp_path / topic).mkdir()
        for number in range(partitions):
            rows = pa.table({topic: range(ROWS)})
            pq.write_table(rows, tmp_path / topic / f"{number}.parquet")
    return [given(server, tmp_path / topic, topic=topic) for topic in ("t", "u")]


@pytest.mark.parametrize("protocol", ["classic", "session"])
def test_two_queries_of_one_driver_read_all_of_their_topics(spark, topics, tmp_path, protocol):
    seen = {"t": 0, "u": 0}
    queries = []
    for options in topics:
        topic = options["topic"]

        def count(rows, _, topic=topic):
            seen[topic] += rows.count()
            assert rows.columns == [topic]

        stream = streaming(spark, **options, protocol=protocol, sessionTimeoutMs=3000)
        writer = stream.foreach_batch(count).option("checkpointLocation", f"{tmp_path}/c{topic}")
        queries.append(writer.trigger(processingTime="0 seconds").start())
    wait_until(
        lambda: seen == {"t": 2 * ROWS, "u": 5 * ROWS} or any(q.exception() for q in queries)
    )
    for query in queries:
        query.stop()
        assert query.exception() is None
    assert seen == {"t": 2 * ROWS, "u": 5 * ROWS}


def test_one_query_reads_two_topics_through_a_union(spark, topics, tmp_path):
    spark.dataSource.register(ConsumerGroupSource)
    t, u = (
        spark.readStream.format("consumer_group")
        .options(**options)
        .load()
        .selectExpr(f"{options['topic']} AS n", f"'{options['topic']}' AS topic")
        for options in topics
    )
    writer = t.union(u).writeStream.format("parquet").option("path", f"{tmp_path}/out")
    query = writer.option("checkpointLocation", f"{tmp_path}/c").trigger(availableNow=True).start()
    assert query.awaitTermination(2 * HANG_S)
    found = spark.read.parquet(f"{tmp_path}/out").groupBy("topic").count().collect()
    assert dict(found) == {"t": 2 * ROWS, "u": 5 * ROWS}
