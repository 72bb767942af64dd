"""Every kind of source through Spark: its types, and its rows once each, on real executors."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator.sources import SegmentWriter, write_log
from tests.kit.patience import HANG_S
from tests.kit.serving import Process

ROWS = 3_000
START = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)
TABLE = pa.table(
    {
        "n": pa.array(range(ROWS), pa.int64()),
        "at": pa.array([START + dt.timedelta(minutes=n) for n in range(ROWS)]),
        "late": pa.array([n % 3 == 0 for n in range(ROWS)]),
        "carrier": pa.array([("UA", None, "B6")[n % 3] for n in range(ROWS)]),
    }
)
HALVES = (TABLE.slice(0, 1_000), TABLE.slice(1_000))


def arrow(folder):
    for partition, table in enumerate(HALVES):
        write_log(folder, partition, table)
    return str(folder)


def segments(folder):
    for partition, table in enumerate(HALVES):
        with SegmentWriter(folder, partition, table.schema, bytes_per_segment=20_000) as writer:
            for batch in table.to_batches(max_chunksize=250):
                writer.append(batch)
    return f"segments:{folder}"


def parquet(folder):
    for partition, table in enumerate(HALVES):
        (folder / f"half={partition}").mkdir()
        pq.write_table(table, folder / f"half={partition}/rows.parquet", coerce_timestamps="ms")
    return f"parquet:{folder}"


def jsonl(folder):
    for partition, table in enumerate(HALVES):
        lines = (json.dumps({**row, "at": row["at"].isoformat()}) for row in table.to_pylist())
        (folder / f"{partition}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return f"jsonl:{folder}"


def sql(folder):
    import sqlalchemy as sa

    engine = sa.create_engine(f"sqlite:///{folder}/rows.db")
    table = sa.Table(
        "flights",
        sa.MetaData(),
        sa.Column("n", sa.BigInteger, primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True)),
        sa.Column("late", sa.Boolean),
        sa.Column("carrier", sa.String),
    )
    table.create(engine)
    with engine.begin() as connection:
        connection.execute(table.insert(), TABLE.to_pylist())
    engine.dispose()
    return f"sql:sqlite:///{folder}/rows.db#table=flights&key=n&spread=2"


@pytest.fixture(scope="module")
def server():
    with Process() as process:
        yield process


@pytest.fixture
def load(spark, server, tmp_path):
    """Function that runs a query over a source, and returns what it has written."""

    def loaded(source: str, schema: str = ""):
        options = {"coordinator": server.address, "group": tmp_path.name, "source": source}
        reader = spark.readStream.format("consumer_group").options(**options)
        rows = (reader.schema(schema) if schema else reader).load()
        out = str(tmp_path / "out")
        query = (
            rows.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(out)
        )
        assert query.awaitTermination(2 * HANG_S)
        return spark.read.parquet(out)

    return loaded


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "log"
    made.mkdir()
    return made


@pytest.mark.parametrize("write", [arrow, segments, parquet, jsonl, sql])
def test_rows_come_once_and_with_their_types(load, folder, write):
    rows = load(write(folder))
    types = dict(rows.dtypes)
    assert types.pop("half", "string") == "string", "a column that the folders are named for"
    # SQLite keeps no zones.
    at = {sql: "timestamp_ntz", jsonl: "string"}.get(write, "timestamp")
    assert types == {"n": "bigint", "at": at, "late": "boolean", "carrier": "string"}
    row = rows.selectExpr(
        "count(*)", "count(distinct n)", "sum(n)", "sum(int(late))", "count(carrier)",
        "max(cast(at as timestamp))",
    ).first()  # fmt: skip
    last = START + dt.timedelta(minutes=ROWS - 1)
    assert tuple(row)[:5] == (ROWS, ROWS, sum(range(ROWS)), ROWS // 3, ROWS - ROWS // 3)
    assert row[5].timestamp() == last.timestamp()


def test_a_schema_of_ones_own_chooses_columns_and_types(load, folder):
    rows = load(jsonl(folder), "at timestamp, n int")
    assert dict(rows.dtypes) == {"at": "timestamp", "n": "int"}
    assert (
        rows.where("n = 1500").first()["at"].timestamp()
        == (START + dt.timedelta(minutes=1_500)).timestamp()
    )


def test_a_kafka_topic_is_a_source(load):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1})
    for n in range(200):
        producer.produce("flights", value=str(n), partition=n % 4, timestamp=1_000 + n)
    assert producer.flush(HANG_S) == 0
    (broker,) = producer.list_topics(timeout=HANG_S).brokers.values()
    rows = load(f"kafka://{broker.host}:{broker.port}/flights")
    row = rows.selectExpr(
        "sum(int(string(value)))",
        "count(distinct partition, offset)",
        "unix_millis(max(timestamp))",
    ).first()
    assert tuple(row) == (sum(range(200)), 200, 1_199)
    del producer
