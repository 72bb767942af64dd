"""Directories that would be misread are refused, with the layout that is expected."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator.sources import BadLayout, FileLog, NothingFound, open_source, partitions_of

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
        ([PART, "_SUCCESS"], PART),
        ([PART, "_temporary/0/task_1/" + PART], PART),
        ([PART, "_delta_log/00000000000000000000.json"], "_delta_log: this is a Delta table"),
        (["p=0/" + PART, "_delta_log/0.json"], "_delta_log: this is a Delta table"),
        (["p=0/" + PART, "_spark_metadata/0"], "_spark_metadata: this is output of a stream"),
        (["date=2026-11-21/" + PART], "date=2026-11-21/" + PART),
        (["0/a.parquet", "date=2026-11-21/" + PART], "date=2026-11-21/" + PART),
        (["day=20261121/" + PART], "day=20261121 would be partition 20,261,121"),
        (["year=2025/a.parquet", "year=2026/a.parquet"], "year=2026 would be partition 2,026"),
        (["ts=1700000000/a.parquet"], "ts=1700000000/a.parquet belongs to no partition"),
        (["p=__HIVE_DEFAULT_PARTITION__/a.parquet"], "belongs to no partition"),
        (["p=-1/a.parquet"], "belongs to no partition"),
        (["a=1/b=2/" + PART], "b=2/" + PART),
        (["a=0/x.parquet", "a=0/b=2/" + PART], "b=2/" + PART),
        (["0/out.parquet/" + PART], "out.parquet/" + PART),
        # Layouts that people write.
        (["0.parquet", "rows.parquet"], "rows.parquet belongs to no partition"),
        (["new/0.parquet"], "new/0.parquet belongs to no partition"),
        (["0/a.PARQUET"], "a.PARQUET: the suffix is to be .parquet"),
        (["0/a.csv"], "0/a.csv is not of the format asked for, whose suffix is .parquet"),
        (["0/a.parquet", "1/a.csv"], "1/a.csv is not of the format asked for"),
        (["0.csv"], "0.csv belongs to no partition"),
        (["0/a.csv.gz"], "0/a.csv.gz is not of the format asked for"),
    ],
)
def test_a_layout_that_would_be_misread_is_refused(tmp_path, names, named):
    log = lay_out(tmp_path, *names)
    with pytest.raises(BadLayout) as caught:
        log.partitions()
    message = str(caught.value)
    assert named in message
    assert EXPECTED in message or "the suffix" in message or "suffix is" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("names", "partitions"),
    [
        (["0.parquet", "2.parquet", "README.md", "schema.json", "0.csv"], 3),
        (["day=3/a.parquet", "day=3/_SUCCESS", "day=3/.a.parquet.crc"], 4),
        (["0/", "1/"], 2),
        (["0/a.parquet", "1/"], 2),
        (["0/a.parquet", "0/b.parquet.inprogress", "1/a.parquet.inprogress"], 2),
        (["0/a.parquet", "0/_temporary/0/a.parquet", "_temporary/0/a.parquet", ".x/a.parquet"], 1),
        (["0/a.parquet", "0/_old/a.parquet", "0/notes/README.md", "0/a.csv"], 1),
        ([f"{n}/" for n in range(120)] + ["1000/"], 1001),
    ],
)
def test_a_layout_that_is_read_as_meant_is_welcome(tmp_path, names, partitions):
    assert lay_out(tmp_path, *names).partitions() == list(range(partitions))


@pytest.mark.parametrize("names", [[], ["_SUCCESS"], ["README.md"], ["empty/"], ["_a/0.parquet"]])
def test_nothing_found_fails_unless_it_is_allowed(tmp_path, names):
    log = lay_out(tmp_path, *names)
    with pytest.raises(NothingFound, match=r"nothing was found in t: expected is one file for"):
        partitions_of(log)
    assert partitions_of(log, allow_empty=True) == []


def test_rows_that_would_be_misread_are_refused_also_where_nothing_is_allowed(tmp_path):
    with pytest.raises(BadLayout):
        partitions_of(lay_out(tmp_path, PART), allow_empty=True)


@pytest.mark.parametrize("location", ["parquet:{}/missing", "{}/0.parquet"])
def test_a_directory_that_is_none_is_no_empty_one(tmp_path, location):
    lay_out(tmp_path, "0.parquet")
    with pytest.raises((FileNotFoundError, NotADirectoryError), match=r"missing|0\.parquet"):
        partitions_of(open_source(location.format(tmp_path)), allow_empty=True)


@pytest.mark.parametrize("folder", ["", "0", "date=2026-11-21"])
def test_what_may_not_be_looked_at_is_not_empty(tmp_path, monkeypatch, folder):
    import os

    log = lay_out(tmp_path, "0/a.parquet", "date=2026-11-21/")
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
    ("format", "content"), [("parquet", b""), ("parquet", b"PAR1"), ("arrow", b""), ("csv", b"")]
)
def test_a_file_that_is_not_whole_is_refused_by_name_unless_its_format_grows(
    tmp_path, format, content
):
    (tmp_path / f"0.{format}").write_bytes(content)
    log = FileLog(str(tmp_path), "t", format)
    if format == "csv":
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
