"""A disk that is full, read-only or broken: refused in plain words, and well again by itself."""

from __future__ import annotations

import asyncio
import contextlib
import sys

import apsw
import pytest

from coordinator.core.values.ids import ShardId
from coordinator.storage.log import Ambiguous, CannotOpen, Entry, LogUnavailable, ShardSnapshot
from coordinator.storage.sqlite import SqliteLog
from coordinator.storage.store_files import StoreFiles
from tests.kit.patience import HANG_S
from tests.unit.storage.conftest import SHARDS, opened
from tests.unit.storage.disks import Disk

S0, S1 = ShardId(0), ShardId(1)
TROUBLES = {
    "full": ("write", apsw.FullError, 0, True),
    "read-only": ("write", apsw.ReadOnlyError, 0, True),
    "broken write": ("write", apsw.IOError, apsw.SQLITE_IOERR_WRITE, False),
    "broken sync": ("sync", apsw.IOError, apsw.SQLITE_IOERR_FSYNC, False),
}
"""The step that fails, how, and whether waiting does not change it."""


@pytest.fixture
def disk():
    disk = Disk("trouble")
    yield disk
    disk.close()


def entry(sequence: int, fence, size: int = 10) -> Entry:
    return Entry(sequence, fence.fence_epoch, sequence - 1, (b"%d" % sequence * size,))


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_appends_are_refused_and_go_on_when_the_disk_is_well_again(tmp_path, disk, trouble):
    step, kind, extended, is_lasting = TROUBLES[trouble]
    async with opened(tmp_path, vfs=disk.name) as log:
        fence = await log.fence(S0)
        other = await log.fence(S1)
        await log.append(fence, entry(1, fence))
        disk.break_(step, kind, extended)
        for _ in range(3):
            results = await asyncio.gather(
                log.append(fence, entry(2, fence)),
                log.append(other, entry(1, other, size=30_000)),
                return_exceptions=True,
            )
            assert [type(result) for result in results] == [LogUnavailable, LogUnavailable]
            assert [result.is_lasting for result in results] == [is_lasting, is_lasting]
            assert "the test broke it" in str(results[0])
        disk.repair()
        await log.append(fence, entry(2, fence))
        await log.append(other, entry(1, other))
        assert (await log.load(fence)).sequence == 2
    async with opened(tmp_path) as log:
        assert (await log.load(await log.fence(S0))).sequence == 2
        assert list((await log.load(await log.fence(S1))).records()) == [b"1" * 10]


async def test_a_store_that_cannot_be_opened_again_for_a_checkpoint_ends_no_writer(
    tmp_path, disk, monkeypatch
):
    def refuse():
        raise CannotOpen("it is another store now")

    async with opened(tmp_path, vfs=disk.name) as log:
        fence = await log.fence(S0)
        await log.append(fence, entry(1, fence))
        with monkeypatch.context() as patched:
            # Short of room from the moment in which it has hung up.
            patched.setattr(
                log._files,
                "free_bytes",
                lambda: sys.maxsize * (log._writer._connection is not None),
            )
            patched.setattr(log._writer, "_open", refuse)
            disk.break_("write", apsw.FullError)
            with pytest.raises(LogUnavailable):
                await log.append(fence, entry(2, fence))
            # It has looked at the log since, and would have made room.
            async with asyncio.timeout(HANG_S):
                with pytest.raises(CannotOpen, match="another store"):
                    await log.append(fence, entry(2, fence))
            disk.repair()
        async with asyncio.timeout(HANG_S):
            while True:
                with contextlib.suppress(LogUnavailable):  # Until the writer has looked again.
                    await log.append(fence, entry(2, fence))
                    break
        assert (await log.load(fence)).sequence == 2


async def test_a_sync_that_fails_on_a_disk_that_cannot_be_cut_is_ambiguous(
    tmp_path, disk, monkeypatch
):
    cut = StoreFiles.cut_log

    def no_longer(size_bytes: int) -> None:
        raise OSError(5, "Input/output error")

    async with opened(tmp_path, vfs=disk.name) as log:
        fence = await log.fence(S0)
        disk.break_("sync", apsw.IOError, apsw.SQLITE_IOERR_FSYNC)
        monkeypatch.setattr(log._files, "cut_log", no_longer)
        with pytest.raises(Ambiguous):
            await log.append(fence, entry(1, fence))
        disk.repair()
        # Before the doubtful pages are gone nothing else is done.
        with pytest.raises(LogUnavailable, match="Input/output error"):
            await log.append(fence, entry(1, fence))
        monkeypatch.setattr(log._files, "cut_log", lambda size: cut(log._files, size))
        await log.append(fence, entry(1, fence))
        assert (await log.load(fence)).sequence == 1


async def test_a_snapshot_that_cannot_be_written_leaves_everything_as_it_was(tmp_path, disk):
    async with opened(tmp_path, vfs=disk.name) as log:
        fence = await log.fence(S0)
        await log.append(fence, entry(1, fence))
        disk.break_("write", apsw.FullError)
        with pytest.raises(LogUnavailable):
            await log.write_snapshot(fence, ShardSnapshot(1, 1, [b"sum"]))
        disk.repair()
        assert list((await log.load(fence)).records()) == [b"1" * 10]
        await log.write_snapshot(fence, ShardSnapshot(1, 1, [b"sum"]))
        assert list((await log.load(fence)).records()) == [b"sum"]


async def test_a_store_cannot_be_made_on_a_full_disk(tmp_path, disk):
    disk.break_("write", apsw.FullError)
    with pytest.raises(CannotOpen, match="cannot be used"):
        SqliteLog(tmp_path, shards=SHARDS, vfs=disk.name)
    disk.repair()
    async with opened(tmp_path, vfs=disk.name) as log:
        await log.fence(S0)


async def test_a_bug_in_a_job_refuses_its_batch_and_the_writer_lives_on(tmp_path):
    def broken(_: apsw.Connection) -> None:
        raise ZeroDivisionError

    async with opened(tmp_path) as log:
        fence = await log.fence(S0)
        with pytest.raises(ZeroDivisionError):
            await log._writer.run(broken)
        await log.append(fence, entry(1, fence))


async def test_a_bug_in_the_writer_itself_is_told_to_those_who_wait(tmp_path, monkeypatch):
    def broken(batch) -> None:
        raise ZeroDivisionError

    async with opened(tmp_path) as log:
        fence = await log.fence(S0)
        with monkeypatch.context() as patch:
            patch.setattr(log._writer._jobs, "_commit", broken)
            with pytest.raises(ZeroDivisionError):
                await log.append(fence, entry(1, fence))
        await log.append(fence, entry(1, fence))
