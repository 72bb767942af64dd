"""Each sink on a real Spark: executors stage, the driver has the batch decided, a table follows."""

from __future__ import annotations

import pytest

from coordinator.spark.exactly_once import ExactlyOnce, read_exactly_once
from coordinator.spark.ranges import BatchRanges, OffsetRange
from coordinator.spark.sinks.writer import BatchWriter
from tests.kit.patience import HANG_S
from tests.kit.serving import Process
from tests.kit.sinks import GROUP, KINDS, TOPIC, Place, everything, log_of

ROWS = 40


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return log_of(ROWS, tmp_path_factory.mktemp("log"))


@pytest.fixture(scope="module")
def server():
    with Process(
        "--group-min-session-timeout-ms", "1000", "--group-initial-rebalance-delay-ms", "0"
    ) as process:
        yield process


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_writes_each_row_once_and_goes_on_after_its_checkpoint_is_gone(
    spark, log, server, tmp_path, kind
):
    place = Place(kind, str(tmp_path))
    # Readers of Parquet ask for the group by its name.
    group = GROUP if kind == "parquet" else f"{GROUP}-{kind}"

    def run(most: str, checkpoint: str) -> ExactlyOnce:
        sink = ExactlyOnce(place.sink())
        options = {
            "coordinator": server.address, "group": group, "source": str(log), "topic": TOPIC,
            "maxRowsPerBatch": most, "sessionTimeoutMs": "3000",
        }  # fmt: skip
        rows = spark.readStream.format("consumer_group").options(**options).load()
        made = rows.selectExpr(
            "p", "n", "timestamp_seconds(n) as at", "cast(n as decimal(10,2)) as amount"
        )
        writer = made.writeStream.foreachBatch(sink)
        query = (
            writer.option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(2 * HANG_S)
        assert query.exception() is None
        return sink

    assert run("70", "first").refused == 0
    assert place.rows(server.address) == everything(ROWS)
    # The checkpoint is lost: the group knows where it is, and the table what it shows.
    run("70", "second")
    assert place.rows(server.address) == everything(ROWS)


def test_a_column_that_a_later_version_of_a_query_adds_is_null_in_earlier_rows(
    spark, server, tmp_path
):
    import pyarrow as pa

    sink = Place("parquet", str(tmp_path)).sink()
    exact = BatchWriter(sink, server.address, "versions", TOPIC)
    for number, rows in enumerate(({"n": [0]}, {"n": [1], "more": ["x"]}, {"n": [2]})):
        batch = BatchRanges(number, {0: OffsetRange(number, number + 1, number or -1)})
        assert exact.write(pa.table(rows), batch)
    folder = str(tmp_path / "results")
    table = read_exactly_once(spark, folder, server.address, "versions")
    assert sorted(map(tuple, table.select("n", "more").collect())) == [
        (0, None), (1, "x"), (2, None)
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["complete", "update", "append"])
def test_a_query_with_state_is_refused_with_the_reason(spark, log, server, tmp_path, how):
    options = {
        "coordinator": server.address, "group": f"state-{how}", "source": str(log), "topic": TOPIC,
    }  # fmt: skip
    rows = spark.readStream.format("consumer_group").options(**options).load()
    made = rows.dropDuplicates(["n"]) if how == "append" else rows.groupBy("p").count()
    sink = ExactlyOnce(Place("parquet", str(tmp_path)).sink())
    writer = made.writeStream.foreachBatch(sink).outputMode(how)
    query = writer.option("checkpointLocation", f"{tmp_path}/c").trigger(availableNow=True).start()
    with pytest.raises(Exception, match="SinkRefused: the query keeps state"):
        query.awaitTermination(2 * HANG_S)
    assert not list((tmp_path / "results").rglob("*.parquet"))


def test_rows_are_asked_for_what_a_delta_table_demands(spark, server, tmp_path):
    from deltalake import DeltaTable, Field, Schema
    from deltalake.schema import PrimitiveType

    fields = [Field("p", PrimitiveType("long"), nullable=False), Field("n", PrimitiveType("long"))]
    place = Place("delta", str(tmp_path))
    table = DeltaTable.create(place.location(), Schema(fields))
    table.alter.add_constraint({"small": "n < 100"})
    sink = BatchWriter(place.sink(), server.address, "demands", TOPIC)
    batch = BatchRanges(1, {0: OffsetRange(0, 2, -1)})
    for value, told in (("100", "constraint small"), ("null", "constraint small")):
        rows = spark.sql(f"SELECT 1L AS p, cast({value} AS long) AS n UNION ALL SELECT 2L, 3L")
        with pytest.raises(Exception, match=f"SinkRefused: a row breaks {told}"):
            sink.write(rows, batch)
    rows = spark.sql("SELECT if(n = 1, null, n) AS p, n FROM VALUES (1L), (2L) AS t(n)")
    with pytest.raises(Exception, match="a row breaks column p, which may not be null"):
        sink.write(rows, batch)
    # A join drops the row that would break it: conditions are asked of what is written.
    rows = spark.sql("SELECT n AS p, n FROM VALUES (99L), (200L) AS t(n)").where("n < 150")
    assert sink.write(rows, batch)
    assert DeltaTable(place.location()).to_pyarrow_table().to_pylist() == [{"p": 99, "n": 99}]
    assert DeltaTable(place.location()).get_add_actions(flatten=True)["max.n"].to_pylist() == [99]
