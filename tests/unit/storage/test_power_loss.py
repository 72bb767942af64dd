"""The power fails at every single write and sync: nothing acknowledged is missing afterwards.

Killing a process keeps what the operating system has not written yet, so it proves
nothing about syncs. Here the writes below SQLite are written down and played back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from coordinator.core.values.ids import ShardId
from coordinator.storage import group_commit, schema, writer
from coordinator.storage.folder import DATABASE
from coordinator.storage.log import Ambiguous, CannotOpen, Entry, LogUnavailable, ShardSnapshot
from coordinator.storage.sql_log import read_shard
from coordinator.storage.sqlite import SqliteLog, SqliteTransaction
from coordinator.storage.store_files import StoreFiles
from tests.unit.storage.conftest import SHARDS
from tests.unit.storage.disks import Disk, Image, images_at

ROUNDS = 12


@pytest.fixture
def disk(monkeypatch):
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES_MAX", 40)  # Several within the work.
    disk = Disk("recorder")
    yield disk
    disk.close()


async def work(folder: Path, disk: Disk) -> dict[tuple[int, int], bytes]:
    """Appends to several shards at once, snapshots, checkpoints, two owners; what was asked for."""
    asked: dict[tuple[int, int], bytes] = {}
    disk.note(("began",))
    log = SqliteLog(folder, shards=SHARDS, vfs=disk.name)

    async def write(fence, sequence: int) -> None:
        record = b"%d/%d " % (fence.shard, sequence) * (1 + sequence % 3 * 300)
        asked[fence.shard, sequence] = record
        await log.append(fence, Entry(sequence, fence.fence_epoch, sequence - 1, (record,)))
        disk.note(("appended", fence.shard, sequence))

    sequence = 0
    for epoch in (1, 2):
        fences = [await log.fence(ShardId(n)) for n in range(3)]
        for fence in fences:
            disk.note(("fenced", fence.shard, epoch))
        for _ in range(ROUNDS):
            sequence += 1
            await asyncio.gather(*(write(fence, sequence) for fence in fences))
            if sequence % 7 == 3:
                sums = [asked[1, n] for n in range(1, sequence + 1)]
                await log.write_snapshot(fences[1], ShardSnapshot(sequence, sequence, iter(sums)))
    await log.close()
    return asked


class Reader:
    """Reads disks as the coordinator does, each content once."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._known: dict[frozenset, dict[int, tuple[list[bytes], int]] | None] = {}

    def read(self, image: Image) -> dict[int, tuple[list[bytes], int]] | None:
        """Records and epoch of each shard; None if there is no store."""
        content = frozenset(image.items())
        if content not in self._known:
            self._known[content] = self._read(image)
        return self._known[content]

    def _read(self, image: Image) -> dict[int, tuple[list[bytes], int]] | None:
        for old in self._folder.glob("*"):
            old.unlink()
        for name, content in image.items():
            (self._folder / name).write_bytes(content)
        connection = apsw.Connection(str(self._folder / DATABASE))
        # The folder is not used again: no checkpoint at the end.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        try:
            schema.check_format(connection)
            return {
                shard: (
                    list(read_shard(SqliteTransaction(connection), ShardId(shard)).records()),
                    connection.execute(
                        "SELECT coalesce(max(epoch), 0) FROM fence WHERE shard = ?", (shard,)
                    ).get,
                )
                for shard in range(3)
            }
        except CannotOpen:
            return None
        finally:
            connection.close()


def lost(known: list[tuple], found, asked) -> list[str]:
    """Acknowledged entries that are missing on the disk.

    Args:
        known: the test's notes until the power failed.
        found: as of `Reader.read`.
    """
    appended = {what[1:] for what in known if what[0] == "appended"}
    fenced = {what[1]: what[2] for what in known if what[0] == "fenced"}
    if found is None:
        # The store was not made yet. It may be made now; there is nothing to lose.
        return [f"{what}: there is no store" for what in (*appended, *fenced)]
    problems = []
    for shard, (there, epoch) in found.items():
        if there != [asked[shard, n] for n in range(1, len(there) + 1)]:
            problems.append(f"shard {shard} holds what nobody wrote")
        missing = {n for s, n in appended if s == shard and n > len(there)}
        problems += [f"shard {shard}, entry {n} is missing" for n in sorted(missing)]
        if epoch < fenced.get(shard, 0):
            problems.append(f"shard {shard} fell back to epoch {epoch}")
    return problems


def losses(disk: Disk, asked, folder: Path) -> Iterator[str]:
    """Losses of a power failure, at every point at which the disk differs from before."""
    reader, known, tried = Reader(folder), [], 0
    for point, op in enumerate([*disk.ops, ("end",)]):
        if op[0] == "note":
            known.append(op[1])  # The disk stays as it is, and more must be found on it.
            continue
        for image in images_at(disk.ops, point, seed=point):
            tried += 1
            yield from (f"at {point}: {what}" for what in lost(known, reader.read(image), asked))
    assert tried > 500, "the work was too short to say anything"


def first_missing(disk: Disk, asked, folder: Path) -> str | None:
    """The first entry that was acknowledged and is lost."""
    return next((what for what in losses(disk, asked, folder) if "is missing" in what), None)


async def test_power_fails_at_every_write_and_sync(tmp_path, disk):
    asked = await work(tmp_path / "data", disk)
    assert list(losses(disk, asked, tmp_path / "image")) == []


def seen_by(disk: Disk, monkeypatch) -> None:
    """Let the disk know of the cuts, which go past SQLite."""
    cut = StoreFiles.cut_log

    def and_record(self, size_bytes: int) -> None:
        cut(self, size_bytes)
        name = f"{DATABASE}-wal"
        disk.ops += [("truncate", name, size_bytes), ("sync", name)]

    monkeypatch.setattr(StoreFiles, "cut_log", and_record)


async def work_on_a_bad_disk(folder: Path, disk: Disk) -> dict[tuple[int, int], bytes]:
    """Appends, of which every third meets a sync that fails and is asked for again."""
    asked: dict[tuple[int, int], bytes] = {}
    log = SqliteLog(folder, shards=SHARDS, vfs=disk.name)
    fence = await log.fence(ShardId(0))
    for sequence in range(1, 40):
        record = b"%d " % sequence * (1 + sequence % 3 * 800)
        asked[0, sequence] = record
        entry = Entry(sequence, fence.fence_epoch, sequence - 1, (record,))
        if sequence % 3 == 0:
            disk.break_("sync", apsw.IOError, apsw.SQLITE_IOERR_FSYNC)
            with pytest.raises((Ambiguous, LogUnavailable)):
                await log.append(fence, entry)
            disk.repair()
        await log.append(fence, entry)
        disk.note(("appended", 0, sequence))
    await log.close()
    return asked


async def test_power_fails_after_syncs_have_failed(tmp_path, disk, monkeypatch):
    seen_by(disk, monkeypatch)
    asked = await work_on_a_bad_disk(tmp_path / "data", disk)
    assert list(losses(disk, asked, tmp_path / "image")) == []


async def test_trusting_what_a_failed_sync_left_is_found(tmp_path, disk, monkeypatch):
    monkeypatch.setattr(StoreFiles, "cut_log", lambda self, size_bytes: None)
    asked = await work_on_a_bad_disk(tmp_path / "data", disk)
    assert first_missing(disk, asked, tmp_path / "image")


async def test_without_syncs_the_same_test_finds_losses(tmp_path, disk, monkeypatch):
    prepare = schema.prepare

    def careless(connection, shards):
        prepare(connection, shards)
        connection.execute("PRAGMA synchronous = NORMAL")

    monkeypatch.setattr(schema, "prepare", careless)
    asked = await work(tmp_path / "data", disk)
    assert first_missing(disk, asked, tmp_path / "image")


async def test_an_acknowledgement_before_the_commit_is_found(tmp_path, disk, monkeypatch):
    commit, answer, deliver = writer.Writer._commit, group_commit._answer, group_commit._deliver

    def hasty(self, batch):
        appends = [a for a in batch if isinstance(a.job, tuple)]
        if appends:
            deliver(appends)
        commit(self, batch)

    def once(batch):
        answer([asked for asked in batch if not asked.future.done()])

    monkeypatch.setattr(writer.Writer, "_commit", hasty)
    monkeypatch.setattr(group_commit, "_answer", once)
    asked = await work(tmp_path / "data", disk)
    assert first_missing(disk, asked, tmp_path / "image")
