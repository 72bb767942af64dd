"""A sink is given the batch that its query's source process has announced."""

from __future__ import annotations

import json
import os

import pytest

from coordinator.sources.files import FileRange
from coordinator.spark import announced
from coordinator.spark.announced import (
    Announcement,
    announced_batch,
    announced_files,
    batch_of,
    running,
)
from coordinator.spark.ranges import BatchRanges, GroupBatch, OffsetRange
from coordinator.spark.sinks.protocol import SinkRefused

JAVA = 4_000_000


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(announced.tempfile, "tempdir", str(tmp_path))
    return tmp_path


def batch(end: int, id: str) -> dict:
    return BatchRanges(1, {0: OffsetRange(0, end, -1)}, id).to_offset()


def announce(offset: dict, group: str = "g") -> Announcement:
    announcement = Announcement("host:1", group, "t", java=JAVA)
    announcement.put(offset)
    return announcement


def found(batch_id: int = 0, offsets: str | None = None) -> int:
    return announced_batch(JAVA, batch_id, offsets).batch.ranges[0].end


def test_the_newest_batch_of_the_only_query_is_found():
    announcement = announce(batch(3, "one"))
    announcement.put(batch(5, "two"))
    ranges = BatchRanges.from_offset(batch(5, "two"))
    assert announced_batch(JAVA, 0) == GroupBatch("host:1", "g", "t", ranges)


def test_a_stream_finds_its_own_files_and_no_others():
    ranges = [FileRange("file:///a b", 0, 3, 4), FileRange("file:///c", 0, 9, 9)]
    mine, other = (
        Announcement("host:1", "g", "t", stream, java=JAVA) for stream in ("mine", "other")
    )
    mine.put(batch(3, "one"))
    with pytest.raises(SinkRefused, match="has announced no batch"):
        announced_files(JAVA, "mine")  # Never as one without rows.
    mine.put(batch(3, "one"), ranges[:1])
    other.put(batch(9, "two"), ranges[1:])
    found = GroupBatch("host:1", "g", "t", BatchRanges.from_offset(batch(3, "one")))
    assert announced_files(JAVA, "mine") == (found, ranges[:1])
    mine.withdraw()
    with pytest.raises(SinkRefused, match="has announced no batch"):
        announced_files(JAVA, "mine")


def test_a_query_that_has_stopped_or_died_does_not_count():
    announce(batch(3, "one")).withdraw()
    other = announce(batch(4, "two"))
    gone = other._path.with_name("999999999-x.json")
    gone.write_text(other._path.read_text())
    assert found() == 4
    assert not gone.exists()
    other.withdraw()
    with pytest.raises(SinkRefused, match="the rows of batch 7 are of no group's stream"):
        found(7)


def test_an_announcement_of_a_dead_process_does_not_count_though_its_number_is_taken():
    dead = announce(batch(3, "one"))
    os.close(dead._lock)  # As the system does; another process has its number.
    announce(batch(4, "two"))
    assert found() == 4
    assert not dead._path.exists()


def test_what_died_with_its_java_process_is_deleted_and_what_lives_elsewhere_is_left():
    dead, lives = (Announcement("host:1", "g", "t", java=java) for java in (JAVA + 1, JAVA + 2))
    for announcement in (dead, lives):
        announcement.put(batch(3, "one"))
    os.close(dead._lock)
    announce(batch(4, "two"))
    assert not dead._path.parent.exists()
    assert lives._path.exists(), "a container has numbers of its own"


@pytest.mark.parametrize("format", ["v1", "v2"])
@pytest.mark.parametrize("group", ["g", "another"])
def test_several_queries_are_told_apart_by_their_offsets_whatever_the_format(format, group):
    mine = batch(3, "0123456789ab")
    announce(mine)
    announce(batch(4, "ba9876543210"), group)
    announce(BatchRanges(0, {}).to_offset(), group)
    text = json.dumps(mine)
    # The second format keys offsets by source and keeps them as text in JSON.
    offsets = f"v1\n{{}}\n{text}" if format == "v1" else f"v2\n{{}}\n{json.dumps({'0': text})}"
    assert found(7, offsets) == 3
    with pytest.raises(SinkRefused, match=f"3 queries run .* of .*{group}.*: give .* checkpoint="):
        found(7)


@pytest.mark.parametrize("id", ["0123456789ab", ""])
def test_rows_of_another_source_are_refused_though_a_groups_query_runs(id):
    announce(batch(3, id) if id else BatchRanges(0, {}).to_offset())
    with pytest.raises(SinkRefused, match="the rows of batch 7 are of no group's stream"):
        found(7, '[{"flights":{"0":12}}]')


def test_queries_that_begin_without_rows_need_not_be_told_apart():
    nothing = BatchRanges(0, {})
    for group in ("g", "another"):
        announce(nothing.to_offset(), group)
    announce(batch(3, "0123456789ab"))
    assert announced_batch(JAVA, 0, json.dumps(nothing.to_offset())).batch == nothing


def test_a_sink_that_a_stream_calls_is_given_the_streams_batch():
    announce(batch(3, "one"))
    mine = GroupBatch("host:1", "g", "t", BatchRanges.from_offset(batch(5, "two")))
    with running(mine):
        assert batch_of(None, 0) == mine


def test_a_folder_of_somebody_else_is_refused(monkeypatch):
    announce(batch(3, "one"))
    mine = f"consumer-group-{os.getuid()}"
    monkeypatch.setattr(os, "getuid", lambda: 12_345)
    path = announced.Path(announced.tempfile.gettempdir())
    (path / mine).rename(path / "consumer-group-12345")
    with pytest.raises(SinkRefused, match="belongs to another user"):
        found()


@pytest.mark.parametrize("how", ["link", "writable"])
def test_a_folder_in_which_others_may_write_is_refused(folder, how):
    base = folder / f"consumer-group-{os.getuid()}"
    if how == "link":
        (folder / "elsewhere").mkdir(mode=0o700)
        base.symlink_to(folder / "elsewhere")
    else:
        base.mkdir()
        base.chmod(0o777)
    with pytest.raises(SinkRefused, match="delete it, or set TMPDIR"):
        announce(batch(3, "one"))


def test_a_batch_that_cannot_be_announced_leaves_no_earlier_one(monkeypatch):
    announcement = announce(batch(3, "one"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(announced.Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        announcement.put(batch(5, "two"))
    with pytest.raises(SinkRefused, match="no group's stream that has announced"):
        found()
    monkeypatch.undo()


def test_a_batch_is_not_read_while_an_earlier_announcement_cannot_be_withdrawn(monkeypatch):
    announcement = announce(batch(3, "one"))

    def read_only(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(announced.Path, "write_text", read_only)
    monkeypatch.setattr(announced.Path, "unlink", read_only)
    with pytest.raises(RuntimeError, match="is old and cannot be deleted"):
        announcement.put(batch(5, "two"))
