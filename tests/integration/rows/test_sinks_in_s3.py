"""Sinks and locations in S3, whose requests fail, hang, and succeed unseen."""

from __future__ import annotations

import asyncio
import threading

import pytest

from coordinator.sources.file_systems import StorePath
from coordinator.spark.exactly_once import clean, compact
from coordinator.spark.ranges import BatchRanges, OffsetRange
from tests.kit.patience import HANG_S
from tests.kit.s3_server import BUCKET, FAIL, HANG, LOSE, PASS, s3_server
from tests.kit.serving import running
from tests.kit.sinks import GROUP, Place, query, rows_of

REMOTE = ("parquet", "delta", "iceberg")


@pytest.fixture(scope="module")
def s3_of_module():
    with s3_server() as server:
        yield server


@pytest.fixture
def s3(s3_of_module):
    s3_of_module.reset()
    yield s3_of_module
    s3_of_module.reset()


@pytest.fixture(params=REMOTE)
def place(request, tmp_path, s3):
    return Place(request.param, str(tmp_path), s3.endpoint)


@pytest.fixture
async def server():
    async with running() as server:
        yield server


class Killed(BaseException):
    """The process ends here."""


def batch(begin: int, end: int) -> BatchRanges:
    return BatchRanges(1, {0: OffsetRange(begin, end, begin or -1)})


def upto(rows: int) -> dict:
    return dict.fromkeys(((0, n) for n in range(rows)), 1)


def test_files_in_s3_are_written_listed_read_moved_and_deleted(s3, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    folder = StorePath.of(f"s3a://{BUCKET}/{tmp_path.name}/logs")
    assert folder.stat() is None
    with pytest.raises(FileNotFoundError, match=f"s3://{BUCKET}/.*/logs"):
        folder.entries()
    (folder / "a=1%2F2/x").write(b"later")
    (folder / "b").write(b"one")
    (folder / "b").write(b"other")
    assert [(e.name, e.is_folder) for e in folder.entries()] == [("a=1%2F2", True), ("b", False)]
    assert [(p.name, e.size) for p, e in folder.files_below()] == [("x", 5), ("b", 5)]
    (folder / "b").move(folder / "c/d")
    assert (folder / "b").stat() is None
    assert (folder / "c/d").read() == b"other"
    (folder / "c/d").delete()
    (folder / "c/d").delete()
    folder.delete_folder()
    assert folder.stat() is None


async def test_a_query_that_dies_after_the_decision_is_finished_by_the_next(server, place):
    def dies(at: str) -> None:
        if at == "decided":
            raise Killed

    def story():
        with pytest.raises(Killed):
            query(place, server.address, dies).write(rows_of(batch(0, 4)), batch(0, 4))
        successor = query(place, server.address)
        assert not successor.write(rows_of(batch(0, 4)), batch(0, 4))
        assert successor.write(rows_of(batch(4, 6)), batch(4, 6))
        assert place.rows(server.address) == upto(6)

    await asyncio.to_thread(story)


async def test_a_query_that_pauses_after_the_decision_finds_it_done(server, place):
    reached, go_on = threading.Event(), threading.Event()

    def pauses(at: str) -> None:
        if at == "decided":
            reached.set()
            assert go_on.wait(HANG_S)

    zombie = query(place, server.address, pauses)
    late = asyncio.create_task(asyncio.to_thread(zombie.write, rows_of(batch(0, 4)), batch(0, 4)))
    assert await asyncio.to_thread(reached.wait, HANG_S)
    successor = query(place, server.address)
    assert await asyncio.to_thread(successor.write, rows_of(batch(4, 6)), batch(4, 6))
    go_on.set()
    assert await late
    assert await asyncio.to_thread(place.rows, server.address) == upto(6)


@pytest.mark.parametrize("fate", [FAIL, LOSE])
async def test_every_third_write_is_refused_or_has_no_answer(server, place, s3, fate):
    writes = 0

    def chooses(method: str, path: str) -> str:
        nonlocal writes
        writes += method in ("PUT", "POST")
        return fate if method in ("PUT", "POST") and writes % 3 == 0 else PASS

    def story():
        exact = query(place, server.address)
        assert exact.write(rows_of(batch(0, 2)), batch(0, 2))
        s3.choose = chooses
        for begin in (2, 4, 6):
            one = batch(begin, begin + 2)
            while not is_written(exact, one):
                exact = query(place, server.address)
        assert s3.met[fate] > 0
        s3.reset()
        exact.recover()
        assert place.rows(server.address) == upto(8)

    await asyncio.to_thread(story)


async def test_a_write_that_hangs_is_given_up_and_made_again(server, place, s3):
    hung = []

    def chooses(method: str, path: str) -> str:
        if method == "PUT" and not hung:
            hung.append(path)
            # The client gives up by itself, or is cut off: which one is the library's affair.
            threading.Timer(1.0, s3._released.set).start()
            return HANG
        return PASS

    def story():
        exact = query(place, server.address)
        assert exact.write(rows_of(batch(0, 2)), batch(0, 2))
        s3.choose = chooses
        one = batch(2, 4)
        while not is_written(exact, one):
            exact = query(place, server.address)
        assert hung
        assert place.rows(server.address) == upto(4)

    await asyncio.to_thread(story)


def is_written(exact, one: BatchRanges) -> bool:
    """Write a batch as Spark does, which starts a failed query again; True once it counts."""
    try:
        exact.write(rows_of(one), one)
    except Exception as error:  # noqa: BLE001  # Of three libraries.
        print("started again:", error)
        return False
    return True


async def test_parquet_in_s3_is_compacted_and_cleaned(server, s3, tmp_path):
    place = Place("parquet", str(tmp_path), s3.endpoint)

    def story():
        exact = query(place, server.address)
        for begin in range(0, 8, 2):
            assert exact.write(rows_of(batch(begin, begin + 2)), batch(begin, begin + 2))
        assert compact(place.location(), server.address, GROUP)
        assert len(clean(place.location(), server.address, GROUP, older_than_s=-5.0)) > 4
        assert place.rows(server.address) == upto(8)
        assert place.staged() == 1

    await asyncio.to_thread(story)
