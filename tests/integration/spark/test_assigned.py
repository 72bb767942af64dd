"""Batch reads by Spark's own reader: every row once, and as `spark.read` gives it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator.operator.admin import GroupAdmin
from coordinator.sources.base import BadLayout, LogChanged, NothingFound
from coordinator.sources.files import FileRange
from coordinator.spark import committed, read_assigned, reading
from coordinator.spark.file_frames import FileReader
from coordinator.spark.ranges import NO_BATCH
from coordinator.spark.refusals import BadOption
from tests.kit.serving import Process

TYPES = (
    "id AS long",
    "cast(id AS byte) AS tiny",
    "cast(id AS short) AS small",
    "cast(id AS int) AS whole",
    "cast(id AS float) / 3 AS real",
    "id / 7 AS double",
    "cast(id AS decimal(9, 2)) AS dec",
    "cast(id AS decimal(38, 18)) AS wide",
    "if(id % 5 = 0, null, concat('é', id)) AS text",
    "cast(cast(id AS string) AS binary) AS bytes",
    "id % 2 = 0 AS flag",
    "date_add(date'1969-12-28', cast(id AS int)) AS day",
    "timestamp_seconds(id * 86399 + 0.000001) AS at",
    "cast(timestamp_seconds(id) AS timestamp_ntz) AS wall",
    "make_dt_interval(0, 0, 0, id) AS span",
    "make_ym_interval(0, cast(id AS int)) AS months",
    "array(id, null) AS many",
    "map('k', id) AS pairs",
    "named_struct('x', id, 'y', array('z')) AS nested",
)
FOLDERS = (
    "if(id % 3 = 0, null, id % 3) AS part",
    "date_add(date'2026-11-01', cast(id % 2 AS int)) AS since",
    "timestamp_seconds(1000000 + id % 2) AS moment",
    "if(id % 2 = 0, '007', 'a b/ü%') AS label",
)


@pytest.fixture(scope="module")
def server():
    with Process("--group-initial-rebalance-delay-ms", "0") as process:
        yield process


@pytest.fixture
def ours(server, tmp_path):
    """Arguments of a read of the test's folder, and more; each test has a group of its own."""

    def arguments(**more):
        return {
            "coordinator": server.address,
            "group": tmp_path.name,
            "source": f"parquet:{tmp_path}",
            "filePartitions": "3",
            "topic": "t",
            **more,
        }

    return arguments


def rows_of(frame) -> list[str]:
    """The rows as text; Python has no type for intervals of months."""
    names = [
        "cast(months AS string)" if name == "months" else f"`{name}`" for name in frame.columns
    ]
    return sorted(map(str, frame.selectExpr(*names).collect()))


def numbers_of(frame) -> list[int]:
    return sorted(row.n for row in frame.select("n").collect())


def write(path, numbers, **columns) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    some = {"n": list(numbers), **columns}
    pq.write_table(pa.table(some), path, row_group_size=10)


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
def test_every_type_and_folder_column_is_sparks_own(spark, ours, tmp_path, zone):
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = spark.range(0, 60, 1, 3).selectExpr(*TYPES, *FOLDERS)
        names = ["part", "since", "moment", "label"]
        rows.write.partitionBy(*names).mode("append").parquet(str(tmp_path))
        theirs = spark.read.option("mergeSchema", "true").parquet(str(tmp_path))
        with reading(spark, **ours()) as batch:
            assert batch.rows.schema == theirs.schema
            assert rows_of(batch.rows) == rows_of(theirs)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


TEXTS = (
    "id AS n",
    "id / 7 AS double",
    "cast(id AS decimal(9, 2)) AS dec",
    "if(id % 5 = 0, null, if(id % 5 = 1, '', concat('é \"q\" \\\\ , ', id))) AS text",
    "cast(cast(id AS string) AS binary) AS bytes",
    "date_add(date'1969-12-28', cast(id AS int)) AS day",
    "timestamp_seconds(id * 86399) AS at",
)
"""Columns that CSV can hold."""
NESTED = (
    *TEXTS,
    "array(id, null) AS many",
    "map('k', id) AS pairs",
    "named_struct('x', id, 'y', array('z')) AS nested",
    "if(id % 2 = 0, double('NaN'), 1.5D) AS strange",
)
HEADER = {"header": "true"}
INFERRED = {**HEADER, "inferSchema": "true", "escape": '"'}
WHOLE = {
    "orc": ("orc", TYPES[:17], {"compression": "zstd"}, {}),
    "orc-snappy": ("orc", TYPES[:17], {"compression": "snappy"}, {}),
    "json": ("json", NESTED, {}, {}),
    "json-gzip": ("json", NESTED, {"compression": "gzip"}, {"primitivesAsString": "true"}),
    "csv": ("csv", TEXTS, {}, {}),
    "csv-header": ("csv", TEXTS, HEADER, HEADER),
    "csv-bzip2": ("csv", TEXTS, {**INFERRED, "compression": "bzip2"}, INFERRED),
    "text": ("text", ["concat('line ', id) AS value"], {}, {}),
    "text-deflate": ("text", ["cast(id AS string)"], {"compression": "deflate"}, {}),
    "text-whole": ("text", ["cast(id AS string)"], {}, {"wholetext": "true"}),
}


@pytest.mark.parametrize("which", WHOLE)
def test_whole_files_of_other_formats_are_read_as_spark_reads_them(spark, ours, tmp_path, which):
    kind, columns, written, read = WHOLE[which]
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        rows = spark.range(0, 24, 1, 2).selectExpr(*columns, *FOLDERS)
        writer = rows.write.partitionBy("part", "since", "moment", "label").mode("append")
        writer.format(kind).options(**written).save(str(tmp_path))
        theirs = spark.read.format(kind).options(**read, mergeSchema="true").load(str(tmp_path))
        arguments = ours(source=f"{kind}:{tmp_path}", read_options=read, maxFilesPerTrigger=15)
        found: list[str] = []
        files = 0
        while len(found) < theirs.count():
            with reading(spark, **arguments) as batch:
                assert batch.rows.schema == theirs.schema
                found += rows_of(batch.rows)
                read_now = sum(map(len, batch.ranges.values()))
                assert 0 < read_now <= 15
                files += read_now
        assert files == len(theirs.inputFiles())
        assert sorted(found) == rows_of(theirs)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_any_file_is_read_as_a_whole(spark, ours, tmp_path):
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "photo.jpg").write_bytes(b"\xff\xd8")
    theirs = spark.read.format("binaryFile").load(str(tmp_path))
    with reading(spark, **ours(source=f"files:{tmp_path}")) as batch:
        assert batch.rows.schema == theirs.schema
        assert batch.rows.collect() == theirs.collect()


def test_avro_needs_sparks_own_package(spark, ours, tmp_path):
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "a.avro").write_bytes(b"Obj")
    with pytest.raises(Exception, match="Avro is built-in but external"):
        with reading(spark, **ours(source=f"avro:{tmp_path}")):
            raise AssertionError("it was read")


def test_rows_are_read_once_and_files_that_come_later_in_the_next_batch(spark, ours, tmp_path):
    write(tmp_path / "day=1" / "b.parquet", range(25))
    with reading(spark, **ours()) as first:
        assert numbers_of(first.rows) == list(range(25))
    with reading(spark, **ours()) as nothing:
        assert nothing.ranges == {}
        assert nothing.rows.columns == ["n", "day"]
        assert nothing.rows.count() == 0
    write(tmp_path / "day=1" / "a.parquet", range(25, 40), late=["x"] * 15)  # Sorts in front.
    write(tmp_path / "day=x" / "a.parquet", [40])
    with reading(spark, **ours()) as second:
        assert second.rows.columns == ["n", "late", "day"]
        assert numbers_of(second.rows) == list(range(25, 41))
        assert second.rows.where("day = 'x' AND late IS NULL").count() == 1


def test_of_many_files_a_folder_is_read_as_a_whole_only_if_all_of_it_is_meant(
    spark, ours, tmp_path
):
    for n in range(40):
        write(tmp_path / f"day={n % 2}" / f"a b%20{n}.parquet", [n])
    with reading(spark, **ours()) as everything:
        assert numbers_of(everything.rows) == list(range(40))
    for n in range(40, 80):
        write(tmp_path / f"day={n % 2}" / f"a b%20{n}.parquet", [n])
    with reading(spark, **ours()) as rest:
        assert numbers_of(rest.rows) == list(range(40, 80))
        assert rest.rows.schema == spark.read.parquet(str(tmp_path)).schema


STRANGE = [
    "a b",
    "50%",
    "a%20b",
    "ü+ö",
    "[x]",
    "{a,b}",
    "#1",
    "q?",
    "*",
    "it's",
    "é=~",
    "x\\y",
]


@pytest.mark.parametrize("names", [STRANGE, STRANGE[:5], STRANGE[5:]], ids=["12", "5", "7"])
def test_files_are_cut_at_rows_whatever_their_names_are(spark, ours, tmp_path, names):
    """Of so many files that they are read in one scan, and of few."""
    for i, name in enumerate(names):
        write(tmp_path / f"{i}" / f"{name}.parquet", range(35 * i, 35 * i + 35))
    limit = 9 * len(names)
    arguments = ours(filePartitions="numbers", maxRowsPerBatch=limit)
    found: list[int] = []
    for _ in range(3):
        with reading(spark, **arguments) as batch:
            read = numbers_of(batch.rows)
            assert read == sorted(
                n for key, r in batch.ranges.items() for n in _numbers(key.partition, r)
            )
            found += read
    assert len(found) == len(set(found)) == 3 * limit


def _numbers(partition: int, offsets: range) -> range:
    return range(35 * partition + offsets.start, 35 * partition + offsets.stop)


def test_a_row_group_that_a_filter_leaves_out_does_not_shift_the_rows_of_a_range(
    spark, ours, tmp_path
):
    write(tmp_path / "0.parquet", range(100))
    with reading(spark, **ours(filePartitions="numbers", maxRowsPerBatch=45)):
        pass
    with reading(spark, **ours(filePartitions="numbers")) as rest:
        assert numbers_of(rest.rows.where("n >= 60")) == list(range(60, 100))
        assert rest.rows.count() == 55


def test_rows_of_a_block_that_fails_are_read_again(spark, ours, tmp_path):
    write(tmp_path / "day=1" / "a.parquet", range(5))
    with pytest.raises(ZeroDivisionError), reading(spark, **ours()):
        raise ZeroDivisionError
    with reading(spark, **ours()) as batch:
        assert numbers_of(batch.rows) == list(range(5))


@pytest.mark.parametrize("protocol", ["classic", "session"])
def test_programs_that_read_at_once_divide_the_partitions(spark, ours, tmp_path, protocol):
    for number in range(4):
        write(tmp_path / f"{number}.parquet", range(10 * number, 10 * number + 10))
    arguments = ours(filePartitions="numbers", protocol=protocol)
    found: list[int] = []

    def read(_: int) -> None:
        while len(found) < 40:
            with reading(spark, **arguments, rebalanceTimeoutMs=20_000) as batch:
                numbers = numbers_of(batch.rows)
                batch.commit()
                found.extend(numbers)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(read, range(2)))
    assert sorted(found) == list(range(40))


def test_a_file_that_was_written_over_meanwhile_is_not_committed(spark, ours, server, tmp_path):
    write(tmp_path / "day=1" / "a.parquet", range(5))
    with pytest.raises(LogChanged, match=r"a\.parquet was written over"), reading(spark, **ours()):
        write(tmp_path / "day=1" / "a.parquet", range(500))
    with GroupAdmin(server.address) as admin:
        assert "t" not in {key.topic for key in admin.offsets(tmp_path.name)}


def test_a_notebook_commits_a_frame(spark, ours, tmp_path):
    write(tmp_path / "day=1" / "a.parquet", range(5))
    lost = read_assigned(spark, **ours())
    rows = read_assigned(spark, **ours())  # The cell is run again.
    assert numbers_of(rows) == list(range(5))
    with pytest.raises(ValueError, match="pass the DataFrame itself"):
        committed(lost)
    with pytest.raises(ValueError, match="pass the DataFrame itself"):
        committed(rows.where("n = 1"))
    committed(rows)
    with pytest.raises(ValueError, match="were committed"):
        committed(rows)
    with reading(spark, **ours()) as batch:
        assert batch.ranges == {}


def test_a_schema_of_the_users_counts(spark, ours, tmp_path):
    write(tmp_path / "day=1" / "a.parquet", range(3), m=[Decimal("1.5")] * 3)
    schema = "m decimal(10, 2), missing date, day string"
    with reading(spark, **ours(), schema=schema) as batch:
        assert batch.rows.collect()[0].asDict() == {
            "m": Decimal("1.50"),
            "missing": None,
            "day": "1",
        }
        assert batch.rows.schema.simpleString() == (
            "struct<m:decimal(10,2),missing:date,day:string>"
        )


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        (
            {"source": "parquet:{folder}/day=1/a.parquet"},
            BadOption,
            "is a file: name its directory",
        ),
        ({"source": "parquet:{folder}/day=*"}, NothingFound, "without a pattern"),
        ({"source": "parquet:{folder}/none"}, NothingFound, "there is no directory"),
        ({"source": "{folder}"}, BadOption, "such as parquet:"),
        ({"source": "jsonl:{folder}"}, BadOption, "json counts files"),
        ({"source": "csv:{folder}", "maxRowsPerBatch": "7"}, BadOption, "use maxFilesPerTrigger"),
        ({"read_options": {"pathGlobFilter": "a*"}}, BadOption, "the group says which files"),
        ({"columns": "n"}, BadOption, "there is no option columns"),
        ({"minPartition": "7"}, BadOption, "no option minpartition; did you mean minPartitions"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_can(spark, ours, tmp_path, more, error, message):
    write(tmp_path / "day=1" / "a.parquet", range(3))
    more = {
        name: text if name == "read_options" else text.replace("{folder}", str(tmp_path))
        for name, text in more.items()
    }
    with pytest.raises(error, match=message), reading(spark, **ours(**more)):
        raise AssertionError("it was read")


def test_a_table_is_refused(spark, ours, tmp_path):
    write(tmp_path / "a" / "a.parquet", range(3))
    (tmp_path / "_spark_metadata").mkdir()
    with pytest.raises(BadLayout, match="output of a streaming query"):
        with reading(spark, **ours()):
            raise AssertionError("it was read")


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_a_range_without_rows_is_scanned_all_the_same(spark, tmp_path, format):
    """Spark has loaded its code then, before there are rows to wait."""
    spark.range(3).coalesce(1).write.format(format).save(f"{tmp_path}/log")
    (path,) = (tmp_path / "log").glob("part-*")
    reader = FileReader((tmp_path / "log").as_uri(), format, "id long")
    rows = reader.frame(spark, NO_BATCH, [FileRange(path.as_uri(), 0, 0, 3)])
    assert rows.collect() == []
    assert "FileScan" in rows._jdf.queryExecution().executedPlan().toString()
