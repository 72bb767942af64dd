"""A data folder that is deleted, replaced or written over under a running node is noticed."""

from __future__ import annotations

import os
import shutil
import subprocess

import apsw
import pytest

from coordinator.core.values.ids import ShardId
from coordinator.storage import store_files
from coordinator.storage.folder import DATABASE, LOCK
from coordinator.storage.log import Ambiguous, Entry, LogUnavailable
from coordinator.storage.marker import MARKER
from tests.unit.storage.conftest import opened

S0 = ShardId(0)


def checkpoint(folder):
    """Move everything into the database, as a tool may at any time."""
    tool = apsw.Connection(str(folder / DATABASE))
    tool.pragma("journal_mode")
    pages, moved = tool.wal_checkpoint()
    tool.close()
    assert pages == moved > 0


def mount(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


FOLDER = {
    "the folder is deleted": lambda folder, copy: shutil.rmtree(folder),
    "the folder is moved": lambda folder, copy: folder.rename(folder.with_name("away")),
    "the folder is replaced": lambda folder, copy: (
        folder.rename(folder.with_name("away")),
        shutil.copytree(copy, folder),
    ),
    "the database is deleted": lambda folder, copy: (folder / DATABASE).unlink(),
    "the database is replaced": lambda folder, copy: shutil.copy(
        copy / DATABASE, folder / "new"
    ).replace(folder / DATABASE),
    "the write-ahead log is deleted": lambda folder, copy: (folder / f"{DATABASE}-wal").unlink(),
    "the shared memory is deleted": lambda folder, copy: (folder / f"{DATABASE}-shm").unlink(),
    "the marker is replaced": lambda folder, copy: shutil.copy(
        copy / MARKER, folder / "new"
    ).replace(folder / MARKER),
    "the lock is deleted": lambda folder, copy: (folder / LOCK).unlink(),
    "a backup is written over it": lambda folder, copy: (
        checkpoint(folder),  # Else the write-ahead log still has all that the backup lacks.
        shutil.copy(copy / DATABASE, folder / DATABASE),
    ),
}


def entry(sequence: int, fence) -> Entry:
    return Entry(sequence, fence.fence_epoch, sequence - 1, (b"%d" % sequence * 10_000,))


@pytest.fixture(autouse=True)
def looks_at_all_files_each_time(monkeypatch):
    monkeypatch.setattr(store_files, "LOOK_S", 0.0)


@pytest.fixture
def failures():
    return []


async def used(log, folder, copy):
    """Two entries, of which the copy has the first."""
    fence = await log.fence(S0)
    await log.append(fence, entry(1, fence))
    copy.mkdir()
    # Not by `sqlite3`: a second library in this process would end the locks of the first.
    source, target = (apsw.Connection(str(place / DATABASE)) for place in (folder, copy))
    with target.backup("main", source, "main") as backup:
        backup.step()
    target.close()
    source.close()
    shutil.copy(folder / MARKER, copy / MARKER)
    await log.append(fence, entry(2, fence))
    return fence


@pytest.mark.parametrize("what", FOLDER)
async def test_nothing_is_acknowledged_any_more(tmp_path, failures, what):
    folder, copy = tmp_path / "data", tmp_path / "copy"
    async with opened(folder, on_failure=lambda *trouble: failures.append(trouble)) as log:
        fence = await used(log, folder, copy)
        FOLDER[what](folder, copy)
        for _ in range(3):
            with pytest.raises(LogUnavailable, match=str(folder)) as refused:
                await log.append(fence, entry(3, fence))
            assert refused.value.is_lasting
        with pytest.raises(LogUnavailable):
            await log.fence(S0)
        with pytest.raises(LogUnavailable):
            await log.load(fence)
    ((event, words),) = failures
    assert event == "store_gone"
    assert str(folder) in words


async def test_an_idle_log_notices_it_too(tmp_path, failures):
    folder = tmp_path / "data"
    async with opened(folder, on_failure=lambda *trouble: failures.append(trouble)) as log:
        await used(log, folder, tmp_path / "copy")
        shutil.rmtree(folder)
        log._writer._rest(False)  # Its thread does so five times a second.
    assert [event for event, _ in failures] == ["store_gone"]


async def test_what_was_synced_to_a_file_that_is_gone_is_not_trusted(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    monkeypatch.setattr(store_files, "LOOK_S", 1_000.0)
    async with opened(folder) as log:
        fence = await used(log, folder, tmp_path / "copy")
        end = log._writer._end

        def end_and_delete(connection):
            end(connection)
            shutil.rmtree(folder)

        monkeypatch.setattr(log._writer, "_end", end_and_delete)
        with pytest.raises(Ambiguous, match="gone"):
            await log.append(fence, entry(3, fence))


async def test_it_goes_on_when_the_same_folder_is_back(tmp_path, failures):
    folder, away = tmp_path / "data", tmp_path / "away"
    async with opened(folder, on_failure=lambda *trouble: failures.append(trouble)) as log:
        fence = await used(log, folder, tmp_path / "copy")
        folder.rename(away)
        with pytest.raises(LogUnavailable):
            await log.append(fence, entry(3, fence))
        away.rename(folder)
        await log.append(fence, entry(3, fence))
        assert (await log.load(fence)).sequence == 3
    assert [event for event, _ in failures] == ["store_gone", "store_back"]


async def test_a_checkpoint_by_a_tool_is_no_trouble(tmp_path, failures):
    folder = tmp_path / "data"
    async with opened(folder, on_failure=lambda *trouble: failures.append(trouble)) as log:
        fence = await used(log, folder, tmp_path / "copy")
        before = os.stat(folder / DATABASE).st_mtime_ns
        checkpoint(folder)
        assert os.stat(folder / DATABASE).st_mtime_ns != before
        await log.append(fence, entry(3, fence))
        assert (await log.load(fence)).sequence == 3
    assert failures == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
async def test_a_volume_that_is_unmounted(tmp_path, failures):
    folder = tmp_path / "volume"
    folder.mkdir()
    if not mount("mount", "-t", "tmpfs", "-o", "size=8m", "none", str(folder)):
        pytest.skip("no file system can be mounted here")
    try:
        async with opened(folder, on_failure=lambda *trouble: failures.append(trouble)) as log:
            fence = await used(log, folder, tmp_path / "copy")
            assert mount("umount", "-l", str(folder))
            with pytest.raises(LogUnavailable, match="volume"):
                await log.append(fence, entry(3, fence))
    finally:
        mount("umount", "-l", str(folder))
