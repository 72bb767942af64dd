"""Streams by Spark's own reader: every row once, as `spark.read` gives it, whoever dies."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator.sources.base import NothingFound
from coordinator.spark import streaming
from coordinator.spark.refusals import BadOption
from tests.integration.spark.jobs import Job, committed
from tests.integration.spark.test_stream import ENDS, EVERYTHING, ROWS, log, server
from tests.kit.patience import HANG_S

__all__ = ["log", "server"]  # Fixtures.


def given(server, folder, **more):
    return {
        "coordinator": server.address, "group": "g", "source": f"parquet:{folder}", "topic": "t",
        **more,
    }  # fmt: skip


def run_until_all_is_read(stream, function, checkpoint) -> None:
    writer = stream.foreach_batch(function).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(2 * HANG_S)
    assert query.exception() is None


def test_a_session_group_reads_all_that_is_there_once(spark, log, server, tmp_path):
    job = Job(spark, log, server, tmp_path, by_spark=True, protocol="session")
    for _ in range(2):
        assert job.start(availableNow=True).awaitTermination(2 * HANG_S)
        assert job.result() == (EVERYTHING, EVERYTHING)
    assert committed(server) == ENDS


@pytest.mark.parametrize(("kind", "limit"), [("parquet", {}), ("json", {"maxFilesPerTrigger": 9})])
def test_files_that_spark_appends_come_back_as_spark_reads_them(
    spark, server, tmp_path, kind, limit
):
    folder, results, checkpoint = (str(tmp_path / name) for name in ("log", "results", "c"))
    rows = spark.range(24).selectExpr(
        "id", "id / 7 AS d", "named_struct('x', array(id)) AS nested", "id % 3 AS part",
        "if(id % 2 = 0, 'a b/ü%', null) AS label",
    )  # fmt: skip
    for _ in range(2):
        rows.write.partitionBy("part", "label").mode("append").format(kind).save(folder)
        source = {"source": f"{kind}:{folder}", "filePartitions": "3", **limit}
        stream = streaming(spark, **given(server, folder, **source))
        run_until_all_is_read(
            stream, lambda rows, _: rows.write.mode("append").parquet(results), checkpoint
        )
        ours, theirs = spark.read.parquet(results), spark.read.format(kind).load(folder)
        assert ours.schema == theirs.schema
        assert sorted(map(str, ours.collect())) == sorted(map(str, theirs.collect()))


def test_a_batch_that_fails_is_read_again_from_its_checkpoint(spark, log, server, tmp_path):
    seen: list[set[int]] = []

    def fail_at_first(rows, batch_id: int) -> None:
        seen.append({row.n for row in rows.where("partition = 1").select("n").collect()})
        if len(seen) == 2:
            raise ZeroDivisionError

    options = given(server, log.removeprefix("parquet:"), maxRowsPerBatch=3_000)
    stream = streaming(spark, **options)
    with pytest.raises(Exception, match="ZeroDivisionError"):
        run_until_all_is_read(stream, fail_at_first, tmp_path / "c")
    run_until_all_is_read(streaming(spark, **options), fail_at_first, tmp_path / "c")
    first, failed, again, *rest = seen
    assert failed == again
    assert set.union(first, again, *rest) == set(range(ROWS))
    assert len(first) + len(again) + sum(map(len, rest)) == ROWS


def test_a_file_that_is_written_over_in_a_batch_fails_the_query(spark, server, tmp_path):
    path = tmp_path / "log" / "day=1" / "a.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"n": range(5)}), path)
    stream = streaming(spark, **given(server, tmp_path / "log"))
    with pytest.raises(Exception, match=r"a\.parquet was written over"):
        run_until_all_is_read(
            stream, lambda *_: pq.write_table(pa.table({"n": range(50)}), path), tmp_path / "c"
        )
    assert committed(server) == {}


def test_what_a_stream_cannot_be_is_refused_where_it_is_made(spark, server, tmp_path):
    (tmp_path / "empty").mkdir()
    pq.write_table(pa.table({"n": range(5)}), tmp_path / "0.parquet")
    with pytest.raises(NothingFound, match="there is no directory"):
        streaming(spark, **given(server, tmp_path / "none"))
    with pytest.raises(NothingFound, match="nothing was found"):
        streaming(spark, **given(server, tmp_path / "empty"))
    with pytest.raises(BadOption, match="a stream has no end"):
        streaming(spark, **given(server, tmp_path), endingOffsets={"0": 3})
