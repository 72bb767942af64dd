"""Locations of users: how they are spelled, and that stores are alike. S3: tests/integration."""

from __future__ import annotations

import os
import pickle
import uuid

import pytest

from coordinator.sources.file_stores import RemoteStore
from coordinator.sources.file_systems import StorePath


@pytest.mark.parametrize(
    ("location", "shown", "name", "is_local"),
    [
        ("/logs/a=1%2F2", "/logs/a=1%2F2", "a=1%2F2", True),
        ("relative/logs", "relative/logs", "logs", True),
        ("file:/logs/x", "/logs/x", "x", True),
        ("file:///logs/x", "/logs/x", "x", True),
        ("file://localhost/logs", "/logs", "logs", True),
        ("s3a://bucket/logs/", "s3://bucket/logs", "logs", False),
        ("s3://bucket/l?secret_key=hush", "s3://bucket/l", "l", False),
        ("gcs://bucket/l", "gs://bucket/l", "l", False),
        ("abfs://box@account.dfs.core.windows.net/l", None, "l", False),
        ("hdfs:///user/logs", "hdfs:///user/logs", "logs", False),
        (r"C:\logs", r"C:\logs", r"C:\logs", True),
    ],
)
def test_locations_are_parsed_as_users_spell_them(location, shown, name, is_local):
    path = StorePath.of(location)
    assert (str(path), path.name, path.is_local) == (shown or location, name, is_local)
    assert (path / "a").parent == path
    assert pickle.loads(pickle.dumps(path)) == path


def test_a_place_is_one_whatever_the_working_directory(tmp_path, monkeypatch):
    from coordinator.spark.sinks.delta import DeltaSink
    from coordinator.spark.sinks.parquet import ParquetSink

    monkeypatch.chdir(tmp_path)
    for sink in (ParquetSink, DeltaSink):
        assert sink("results").location == sink(str(tmp_path / "results")).location
        assert sink("./results/").location == sink(f"file:{tmp_path}/results").location
    assert ParquetSink("s3://bucket/results").location == "parquet:s3://bucket/results"


@pytest.mark.parametrize("location", ["", "file:", "s3:", "s3://"])
def test_a_location_without_a_path_is_refused(location):
    with pytest.raises(ValueError, match=r"empty|names no path"):
        StorePath.of(location)


def test_a_scheme_that_nobody_knows_is_refused_by_name():
    with pytest.raises(ValueError, match=r"foo://x: .*foo"):
        StorePath.of("foo://x/y").entries()


@pytest.fixture(params=["local", "memory"])
def folder(request, tmp_path):
    if request.param == "local":
        return StorePath.of(tmp_path / "logs")
    pytest.importorskip("fsspec")
    return StorePath.of(f"memory://{uuid.uuid4().hex}/logs")


def test_files_are_written_listed_read_moved_and_deleted(folder):
    assert folder.stat() is None
    (folder / "b=2/x").write(b"later")
    (folder / "a").write(b"one")
    (folder / "a").write(b"other")
    assert next((e.name, e.is_folder, e.size) for e in folder.entries()) == ("a", False, 5)
    assert [(p.name, e.size) for p, e in folder.files_below()] == [("a", 5), ("x", 5)]
    assert (folder / "a").read() == b"other"
    with (folder / "a").open() as file:
        file.seek(2)
        assert file.read(2) == b"he"
    (folder / "a").move(folder / "c/d")
    assert (folder / "a").stat() is None
    assert (folder / "c/d").stat().size == 5
    with (folder / "e/f").writer() as file:
        file.write(b"in ")
        file.write(b"pieces")
    assert (folder / "e/f").read() == b"in pieces"
    (folder / "e/f").delete()
    (folder / "e/f").delete()
    folder.delete_folder()
    folder.delete_folder()
    assert folder.stat() is None


def test_errors_name_the_location(folder):
    with pytest.raises(FileNotFoundError, match="logs/none"):
        (folder / "none").read()
    with pytest.raises(FileNotFoundError, match="logs"):
        folder.entries()


def test_a_move_to_another_file_system_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not on one file system"):
        StorePath.of(tmp_path / "a").move(StorePath.of("memory://x/a"))


def test_a_write_that_fails_leaves_the_old_content(tmp_path, monkeypatch):
    path = StorePath.of(tmp_path / "a")
    path.write(b"old")

    def fails(fd):
        raise OSError(28, "the disk is full")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="full"):
        path.write(b"new")
    assert path.read() == b"old"


@pytest.mark.parametrize("way", ["write", "writer", "move"])
def test_new_names_outlive_a_power_failure_with_the_folders_above_them(way, tmp_path, monkeypatch):
    path, synced = StorePath.of(tmp_path / "new" / "nested" / "a"), set()
    really = os.fsync

    def record(fd):
        synced.add(os.fstat(fd).st_ino)
        really(fd)

    StorePath.of(tmp_path / "b").write(b"")
    monkeypatch.setattr(os, "fsync", record)
    if way == "write":
        path.write(b"a")
    elif way == "writer":
        path.writer().close()
    else:
        StorePath.of(tmp_path / "b").move(path)
    named = [tmp_path, tmp_path / "new"] + [tmp_path / "new" / "nested"] * (way != "move")
    assert {folder.stat().st_ino for folder in named} <= synced


def test_a_file_system_that_caches_its_listings_shows_new_files():
    """File systems of fsspec for HTTP, SFTP and some object stores do so."""
    memory = pytest.importorskip("fsspec.implementations.memory")
    arrow = pytest.importorskip("pyarrow.fs")

    class Caching(memory.MemoryFileSystem):
        cachable = False

        def find(self, path, **more):
            if path not in self.dircache:
                self.dircache[path] = super().find(path, **more)
            return self.dircache[path]

        def invalidate_cache(self, path=None):
            self.dircache.clear()

    files, root = memory.MemoryFileSystem(), f"/{uuid.uuid4().hex}"
    cached = arrow.PyFileSystem(arrow.FSSpecHandler(Caching()))
    store = RemoteStore("caching:/", cached, root)
    files.pipe(f"{root}/a", b"1")
    assert [entry.name for entry in store.entries("")] == ["a"]
    files.pipe(f"{root}/b", b"2")
    assert sorted(entry.name for entry in store.entries("")) == ["a", "b"]
