"""Queries and batch reads of different topics in one group: each row is read once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator.spark import committed, read_assigned, streaming
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


def test_batch_reads_of_two_topics_that_are_open_at_a_time(spark, topics):
    frames = [read_assigned(spark, **options) for options in topics]
    assert [frame.count() for frame in frames] == [2 * ROWS, 5 * ROWS]
    for frame in frames:
        committed(frame)
    for options in topics:
        frame = read_assigned(spark, **options)
        assert frame.count() == 0
        committed(frame)
    assert HANG_S
