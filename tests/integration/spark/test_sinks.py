"""Each sink on a real Spark: executors stage, the driver has the batch decided, a table follows."""

from __future__ import annotations

import pytest

from coordinator.spark.exactly_once import ExactlyOnce, read_exactly_once
from coordinator.spark.ranges import BatchRanges, Range
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
        sink = ExactlyOnce(place.sink(), server.address, group, TOPIC)
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
    exact = ExactlyOnce(sink, server.address, "versions", TOPIC)
    for number, rows in enumerate(({"n": [0]}, {"n": [1], "more": ["x"]}, {"n": [2]})):
        batch = BatchRanges(number, {0: Range(number, number + 1, number or -1)})
        assert exact.write(pa.table(rows), batch)
    folder = str(tmp_path / "results")
    found = read_exactly_once(spark, folder, server.address, "versions")
    assert sorted(map(tuple, found.select("n", "more").collect())) == [
        (0, None), (1, "x"), (2, None)
    ]  # fmt: skip
