"""Directories that would be misread are refused, with the layout that is expected."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator.sources import (
    BadLayout,
    BadRow,
    FileLog,
    NothingFound,
    open_source,
    partitions_of,
)
from coordinator.sources.file_systems import StorePath

PART = "part-00000-1c1e9b0e-6d3c-4b0c-9df1-b0b0b0b0b0b0-c000.snappy.parquet"
EXPECTED = "0.parquet, 1.parquet, ...) or one folder of files for each"
TABLE = pa.table({"n": [1, 2]})


def lay_out(folder: Path, *names: str) -> FileLog:
    """Files of two rows, or folders where a name ends in a slash."""
    for name in names:
        path = folder / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            pq.write_table(TABLE, path)
        elif not name.endswith("/"):
            path.write_text("n\n1\n2\n")
    return FileLog(str(folder), "t", "parquet")


@pytest.mark.parametrize(
    ("names", "named"),
    [
        # Layouts that Spark writes.
        (["0/" + PART, "_delta_log/0.json"], "is a Delta table"),
        (["data/" + PART, "metadata/v1.metadata.json"], "is an Iceberg table"),
        (["a=1/" + PART, ".hoodie/hoodie.properties"], "is a Hudi table"),
        (["0/" + PART, "0/metadata/00001-x.metadata.json"], "0 is an Iceberg table"),
        ([PART, "_delta_log/0.json"], 'read it with spark.readStream.format("delta")'),
        (["p=0/" + PART, "_spark_metadata/0"], "is output of a streaming query"),
        (["0/a.parquet", "date=2026-11-21/" + PART], "0/a.parquet is in the folder 0, which is"),
        (["a=0/x.parquet", "a=0/b=2/" + PART], "are in folders of different columns (a and a/b)"),
        (["a=1/x.parquet", "b=x/x.parquet"], "b=x/x.parquet and "),
        (["date=2026-11-21/more/x.parquet"], "more/x.parquet is in the folder more, which is"),
        (["a=x/a=y/x.parquet"], "in two folders that name the column a"),
        (["20261121/a.parquet"], "20261121 would be partition 20,261,121"),
        (["0/out.parquet/" + PART], "out.parquet/" + PART),
        # Layouts that people write.
        (["0.parquet", "rows.parquet"], "rows.parquet belongs to no partition"),
        (["new/0.parquet"], "new/0.parquet belongs to no partition"),
        (["0/a.PARQUET"], "a.PARQUET is not of the format asked for, whose suffix is .parquet"),
        (["0/a.csv"], "0/a.csv is not of the format asked for, whose suffix is .parquet"),
        (["0.csv"], "0.csv is not of the format asked for"),
        (["0/a.csv.gz"], "0/a.csv.gz is not of the format asked for"),
    ],
)
def test_a_layout_that_would_be_misread_is_refused(tmp_path, names, named):
    log = lay_out(tmp_path, *names)
    with pytest.raises(BadLayout) as caught:
        log.partitions(), log.schema()
    message = str(caught.value)
    assert named in message
    assert any(
        phrase in message
        for phrase in (EXPECTED, "the suffix", "suffix is", "column", "read it with")
    )
    assert "\n" not in message


@pytest.mark.parametrize(
    ("names", "partitions"),
    [
        (["0.parquet", "2.parquet", "README.md", "schema.json", "0.csv"], 3),
        (["0.snappy.parquet"], 1),
        ([PART], 8),
        ([PART, "_SUCCESS", "_temporary/0/task_1/" + PART], 8),
        (["date=2026-11-21/" + PART, "_SUCCESS", "_temporary/0/date=2026-11-22/x.parquet"], 8),
        (["day=20261121/" + PART, "day=20261121/_SUCCESS"], 8),
        (["year=2025/a.parquet", "year=2026/a.parquet"], 8),
        (["ts=1700000000/a.parquet"], 8),
        (["p=__HIVE_DEFAULT_PARTITION__/a.parquet"], 8),
        (["p=-1/a.parquet", "_p=1/a.parquet"][:1], 8),
        (["a=1/b=2/" + PART], 8),
        (["day=3/a.parquet", "day=3/_SUCCESS", "day=3/.a.parquet.crc"], 4),
        (["0/", "1/"], 2),
        (["0/", "1/", "schema.json"], 2),
        (["0/a.parquet", "metadata/notes.md", "_delta_log"], 1),
        (["0/a.parquet", "1/a.csv"], 2),
        (["0/a.parquet", "1/"], 2),
        (["0/a.parquet", "0/b.parquet.inprogress", "1/a.parquet.inprogress"], 2),
        (["0/a.parquet", "0/_temporary/0/a.parquet", "_temporary/0/a.parquet", ".x/a.parquet"], 1),
        (["0/a.parquet", "0/_old/a.parquet", "0/notes/README.md", "0/a.csv"], 1),
        ([f"{n}/" for n in range(120)] + ["1000/"], 1001),
    ],
)
def test_a_layout_that_is_read_as_meant_is_welcome(tmp_path, names, partitions):
    assert lay_out(tmp_path, *names).partitions() == list(range(partitions))


@pytest.mark.parametrize(
    ("mark", "what"),
    [
        ("_delta_log/0.json", "a Delta table"),
        ("metadata/v1.metadata.json", "an Iceberg table"),
        (".hoodie/hoodie.properties", "a Hudi table"),
        ("_spark_metadata/0", "output of a streaming query"),
        ("manifests/1-x.json", "results of an exactly-once query"),
    ],
)
@pytest.mark.parametrize("inside", ["data", "data/day=1", "data/2026"])
def test_a_table_is_recognised_from_inside(tmp_path, mark, what, inside):
    lay_out(tmp_path, "t/" + mark, f"t/{inside}/{PART}")
    with pytest.raises(BadLayout, match=rf"{tmp_path}/t is {what}.*: read it with "):
        FileLog(str(tmp_path / "t" / inside), "t", "parquet").partitions()


def test_folders_above_that_may_not_be_looked_at_are_no_error(tmp_path, monkeypatch):
    log, look = lay_out(tmp_path / "log", PART), StorePath.stat

    def denied(path: StorePath):
        if Path(path.path).parent != tmp_path / "log":
            raise OSError(5, "AWS Error ACCESS_DENIED during HeadObject operation")
        return look(path)

    monkeypatch.setattr(StorePath, "stat", denied)
    assert log.partitions() == list(range(8))


def test_a_table_that_is_no_table_of_ours_does_not_hide_what_is_beside_it(tmp_path):
    lay_out(tmp_path, "other/_delta_log/0.json", f"log/{PART}", "metadata/notes.json")
    lay_out(tmp_path, "manifests/1-x.json", f"data/{PART}")  # Results that share the folder.
    assert FileLog(str(tmp_path / "log"), "t", "parquet").partitions() == list(range(8))


def test_a_folder_named_manifests_is_no_table_without_its_data(tmp_path):
    log = lay_out(tmp_path, "manifests/1.json", PART)
    assert log.partitions() == list(range(8))


# --- Columns that folders are named for -------------------------------------------------------


def rows_of(log: FileLog) -> list[dict]:
    """All rows of all partitions, each partition read up to its end."""
    return [
        row
        for p, snapshot in log.snapshots(log.partitions()).items()
        for batch in snapshot.read(snapshot.begin(), snapshot.end())
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("00012", "00012"),
        ("2026-11-21 07%3A30%3A00", "2026-11-21 07:30:00"),
        ("__HIVE_DEFAULT_PARTITION__", None),
        ("a%2Fb", "a/b"),
        ("%C3%A9 y", "é y"),
        ("", ""),
    ],
)
def test_folders_are_columns_of_texts_as_they_are_named(tmp_path, text, value):
    log = lay_out(tmp_path, f"k=z/v={text}/x.parquet")
    assert log.schema() == pa.schema([("n", pa.int64()), ("k", pa.string()), ("v", pa.string())])
    assert rows_of(log) == [{"n": n, "k": "z", "v": value} for n in (1, 2)]


def test_a_column_of_a_folder_wins_over_the_files_and_takes_the_schemas_type(tmp_path):
    log = lay_out(tmp_path, "n=7/x.parquet", "n=8/x.parquet", "n=x/x.parquet")
    assert {row["n"] for row in rows_of(log)} == {"7", "8", "x"}
    as_number = log.with_schema(pa.schema([("n", pa.int32())]))
    with pytest.raises(BadRow, match=r"n=x/x\.parquet.*Failed to parse string: 'x'"):
        rows_of(as_number)
    shutil.rmtree(tmp_path / "n=x")
    assert sorted(row["n"] for row in rows_of(as_number)) == [7, 7, 8, 8]


def test_a_numbered_partition_has_the_column_that_it_is_named_for(tmp_path):
    log = lay_out(tmp_path, "part=0/a.parquet", "part=1/a.parquet")
    assert log.partitions() == [0, 1]
    assert [row["part"] for row in rows_of(log)] == ["0", "0", "1", "1"]


# --- Rules ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["1", "3", "8"])
def test_the_files_of_a_flat_directory_are_read_once_each_by_every_rule(tmp_path, rule):
    names = [f"part-{n:05}-{n * 7919 % 101:08x}.snappy.parquet" for n in range(12)]
    lay_out(tmp_path, *names, "_SUCCESS", "_temporary/0/x.parquet", "._part.crc")
    for number, name in enumerate(names):
        pq.write_table(pa.table({"n": [number]}), tmp_path / name)
    log = open_source(f"parquet:{tmp_path}#filePartitions={rule}")
    assert sorted(row["n"] for row in rows_of(log)) == list(range(12))
    assert len(log.partitions()) == int(rule)


@pytest.mark.parametrize("rule", ["hash:8", "0", "-1", "x", "10001", "each"])
def test_a_rule_that_is_none_is_refused(tmp_path, rule):
    with pytest.raises(ValueError, match="expected is numbers, or a whole number"):
        open_source(f"parquet:{tmp_path}#filePartitions={rule}")


def test_a_layout_that_is_refused_is_told_the_rule_to_choose(tmp_path):
    with pytest.raises(BadLayout, match=r"set filePartitions=8, which deals them out"):
        lay_out(tmp_path, "0.parquet", PART).partitions()


@pytest.mark.parametrize("names", [[], ["_SUCCESS"], ["README.md"], ["empty/"], ["_a/0.parquet"]])
def test_nothing_found_fails_unless_it_is_allowed(tmp_path, names):
    log = lay_out(tmp_path, *names)
    with pytest.raises(NothingFound, match=r"nothing was found in t: expected are files"):
        partitions_of(log)
    assert partitions_of(log, allow_empty=True) == []


def test_rows_that_would_be_misread_are_refused_also_where_nothing_is_allowed(tmp_path):
    with pytest.raises(BadLayout):
        partitions_of(lay_out(tmp_path, f"new/{PART}"), allow_empty=True)


@pytest.mark.parametrize("location", ["parquet:{}/missing", "{}/0.parquet"])
def test_a_directory_that_is_none_is_no_empty_one(tmp_path, location):
    lay_out(tmp_path, "0.parquet")
    with pytest.raises((FileNotFoundError, NotADirectoryError), match=r"missing|0\.parquet"):
        partitions_of(open_source(location.format(tmp_path)), allow_empty=True)


@pytest.mark.parametrize(
    ("there", "folder"),
    [
        ("0/a.parquet", ""),
        ("0/a.parquet", "0"),
        ("date=2026-11-20/a.parquet", "date=2026-11-21"),
    ],
)
def test_what_may_not_be_looked_at_is_not_empty(tmp_path, monkeypatch, there, folder):
    import os

    log = lay_out(tmp_path, there, folder + "/")
    real = os.scandir

    def scandir(path="."):
        if Path(path) == tmp_path / folder:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    listdir = os.listdir
    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(
        os, "listdir", lambda path=".": scandir(path).close() or listdir(path)
    )  # pathlib lists with one of these.
    with pytest.raises(PermissionError, match="Permission denied"):
        partitions_of(log, allow_empty=True)


@pytest.mark.parametrize(
    ("format", "content"), [("parquet", b""), ("parquet", b"PAR1"), ("arrow", b""), ("jsonl", b"")]
)
def test_a_file_that_is_not_whole_is_refused_by_name_unless_its_format_grows(
    tmp_path, format, content
):
    (tmp_path / f"0.{format}").write_bytes(content)
    log = FileLog(str(tmp_path), "t", format)
    if format == "jsonl":
        assert log.end_offset(0) == 0
    else:
        with pytest.raises(ValueError, match=rf"0\.{format} is not a whole file .* begins with"):
            log.end_offset(0)


def test_a_link_that_leads_nowhere_is_refused_by_name(tmp_path):
    (tmp_path / "0").mkdir()
    (tmp_path / "0/a.parquet").symlink_to(tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match=r"a\.parquet"):
        FileLog(str(tmp_path), "t", "parquet").end_offset(0)


def test_a_partition_may_be_a_link(tmp_path):
    lay_out(tmp_path / "elsewhere", "a.parquet")
    (tmp_path / "log").mkdir()
    (tmp_path / "log/0").symlink_to(tmp_path / "elsewhere")
    log = FileLog(str(tmp_path / "log"), "t", "parquet")
    assert (log.partitions(), log.end_offset(0)) == ([0], 2)
