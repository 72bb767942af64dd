"""Logs of files in object stores: the same rows at the same offsets as on disk."""

from __future__ import annotations

import bz2
import io
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("fsspec", reason="stands in for an object store")

from coordinator.sources import LogChanged, NothingFound, open_source, partitions_of
from coordinator.sources.file_systems import StorePath
from coordinator.sources.group_files import GroupFiles
from tests.unit.sources.memory_documents import MemoryDocuments

TABLE = pa.table({"n": range(3_000), "s": [f"row {n}" for n in range(3_000)]})


def content(kind: str, table: pa.Table) -> bytes:
    sink = io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, sink, row_group_size=700)
    elif kind in ("arrow", "segments"):
        opener = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        with opener(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=700)
    else:
        lines = (f'{{"n": {row["n"]}, "s": "{row["s"]}"}}\n' for row in table.to_pylist())
        sink.write("".join(lines).encode())
    return sink.getvalue()


@pytest.fixture
def store() -> str:
    return f"memory://{uuid.uuid4().hex}/logs"


def rows(log, begin=0, end=None) -> list[dict]:
    found = []
    for snapshot in log.snapshots(log.partitions()).values():
        for batch in snapshot.read(begin, snapshot.end() if end is None else end):
            found += batch.to_pylist()
    return found


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [("parquet", "parquet"), ("jsonl", "json"), ("jsonl", "json.bz2"),
     ("arrow", "arrow"), ("segments", "arrows")],
)  # fmt: skip
def test_every_format_is_read_from_any_row_and_with_its_folders_columns(store, kind, suffix):
    folder = StorePath.of(store)
    for day, part in (("2026-11-22", TABLE.slice(1_000)), ("2026-11-21", TABLE.slice(0, 1_000))):
        raw = content(kind, part)
        raw = bz2.compress(raw) if suffix.endswith("bz2") else raw
        (folder / f"day={day}/part-0.{suffix}").write(raw)
    (folder / "_SUCCESS").write(b"")
    log = open_source(f"{kind}:{store}#filePartitions=1", "t")
    assert log.end_offset(0) == 3_000
    assert [row["n"] for row in rows(log)] == list(range(3_000))
    assert [row["n"] for row in rows(log, 998, 1_702)] == list(range(998, 1_702))
    assert {str(row["day"]) for row in rows(log)} == {"2026-11-21", "2026-11-22"}


def test_a_store_is_appended_to_in_recorded_order_and_a_file_written_over_is_refused(store):
    folder, pages = StorePath.of(store), MemoryDocuments()
    (folder / "m.parquet").write(content("parquet", TABLE.slice(0, 5)))

    def log():
        found = open_source(f"parquet:{store}#filePartitions=1", "t")
        return found.ordered_by(GroupFiles(pages))

    assert len(rows(log())) == 5
    mark = log().snapshot(0).mark(5)
    (folder / "a.parquet").write(content("parquet", TABLE.slice(5, 5)))
    log().snapshot(0).check(mark)
    assert [row["n"] for row in rows(log())] == list(range(10))
    (folder / "m.parquet").write(content("parquet", TABLE.slice(0, 4)))
    with pytest.raises(LogChanged, match=r"logs/m\.parquet was written over since the group"):
        log().snapshot(0)


def test_numbered_partitions_and_nothing_at_all_are_told_apart_in_a_store(store):
    folder = StorePath.of(store)
    (folder / "1/a.parquet").write(content("parquet", TABLE.slice(0, 5)))
    log = open_source(f"parquet:{store}")
    assert (log.partitions(), log.end_offset(0), log.end_offset(1)) == ([0, 1], 0, 5)
    (folder / "1").delete_folder()
    (folder / "README.md").write(b"")
    with pytest.raises(NothingFound):
        partitions_of(open_source(f"parquet:{store}"))
