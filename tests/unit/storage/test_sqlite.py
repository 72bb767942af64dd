"""SQLite: survives its process, knows its holder, refuses what it cannot read."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import threading

import pytest

from coordinator.core.values.ids import ShardId
from coordinator.storage import writer
from coordinator.storage.entry import decode, encode
from coordinator.storage.folder import DATABASE
from coordinator.storage.log import CannotOpen, Damaged, Entry, ShardSnapshot
from coordinator.storage.sqlite import SqliteLog
from tests.kit.patience import HANG_S
from tests.unit.storage.conftest import SHARDS, opened

S0 = ShardId(0)


async def write(log, fence, *sequences: int, size: int = 10) -> None:
    for n in sequences:
        await log.append(fence, Entry(n, fence.fence_epoch, n - 1, (b"%d" % n * size,)))


def change(folder, statement: str, *values) -> None:
    """Reach into the store, as a broken disk would."""
    with sqlite3.connect(folder / DATABASE) as connection:
        connection.execute(statement, values)
    connection.close()


async def test_it_is_all_there_when_the_log_is_opened_again(tmp_path):
    async with opened(tmp_path) as log:
        fence = await log.fence(S0)
        await write(log, fence, 1, 2, 3)
        await log.write_snapshot(fence, ShardSnapshot(2, 2, [b"sum"]))
    async with opened(tmp_path) as log:
        fence = await log.fence(S0)
        assert fence.fence_epoch == 2
        loaded = await log.load(fence)
        assert list(loaded.records()) == [b"sum", b"3" * 10]
        await write(log, fence, 4)


async def test_a_second_process_is_told_who_holds_the_folder(tmp_path):
    async with opened(tmp_path):
        code = (
            "import sys, pathlib\n"
            "from coordinator.storage.sqlite import SqliteLog\n"
            "from coordinator.storage.log import CannotOpen\n"
            "try: SqliteLog(pathlib.Path(sys.argv[1]), shards=4)\n"
            "except CannotOpen as error: print(error)"
        )
        said = await asyncio.to_thread(
            subprocess.check_output, [sys.executable, "-c", code, tmp_path], text=True
        )
        assert f"is in use by process {os.getpid()} on " in said
        assert "data_dir" in said
    async with opened(tmp_path):
        pass  # Free again.


async def test_the_lock_of_a_dead_process_holds_nobody_up(tmp_path):
    (tmp_path / "lock").write_text(json.dumps({"pid": 1, "host": "h", "since": "then"}))
    async with opened(tmp_path) as log:
        await log.fence(S0)


async def test_a_newer_format_is_refused_with_the_reason(tmp_path):
    async with opened(tmp_path):
        pass
    change(tmp_path, "UPDATE meta SET value = 2 WHERE name = 'format'")
    with pytest.raises(CannotOpen, match="has format 2, and this version reads up to 1"):
        SqliteLog(tmp_path, shards=SHARDS)


async def test_the_number_of_shards_is_fixed(tmp_path):
    async with opened(tmp_path):
        pass
    with pytest.raises(CannotOpen, match="made for 4 shards"):
        SqliteLog(tmp_path, shards=5)


def test_another_database_is_left_alone(tmp_path):
    change(tmp_path, "CREATE TABLE somebody_elses (x)")
    with pytest.raises(CannotOpen, match="not one of the coordinator's"):
        SqliteLog(tmp_path, shards=SHARDS)


def test_a_file_that_is_no_database_is_left_alone(tmp_path):
    (tmp_path / DATABASE).write_bytes(b"a letter to a friend" * 100)
    with pytest.raises(CannotOpen, match="not a database"):
        SqliteLog(tmp_path, shards=SHARDS)
    assert (tmp_path / DATABASE).read_bytes() == b"a letter to a friend" * 100


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CannotOpen, match="file/data cannot be used: Not a directory"):
        SqliteLog(tmp_path / "file" / "data", shards=SHARDS)


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE entry SET frame = substr(frame, 1, 20) WHERE sequence = 2", "shard 0, entry 2"),
        ("UPDATE entry SET frame = zeroblob(length(frame)) WHERE sequence = 2", "shard 0, entry 2"),
        ("DELETE FROM entry WHERE sequence = 2", r"shard 0: entry 3 \(offset 2\) follows entry 1"),
        ("DELETE FROM entry WHERE sequence = 3", "ends with entry 2, and 3 was written"),
        (
            "UPDATE entry SET frame = (SELECT frame FROM entry WHERE id = 1) WHERE id = 2",
            "shard 0, entry 2: it belongs to shard 0, entry 1",
        ),
        ("DELETE FROM entry", "shard 0: it ends with entry 0, and 3 was written"),
    ],
)
async def test_damage_stops_the_load_with_its_place_and_what_to_do(tmp_path, statement, what):
    async with opened(tmp_path) as log:
        await write(log, await log.fence(S0), 1, 2, 3)
    change(tmp_path, statement)
    async with opened(tmp_path) as log:
        with pytest.raises(Damaged, match=what) as damage:
            await log.load(await log.fence(S0))
        assert "restore a backup" in str(damage.value)


def test_every_flipped_bit_of_an_entry_is_noticed():
    frame = encode(S0, Entry(1, 1, 0, (b"one", b"two")))
    for bit in range(len(frame) * 8):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Damaged, match="shard 0, entry 1"):
            decode(bytes(flipped), S0, 1)


async def test_a_snapshot_with_a_slice_missing_stops_the_load(tmp_path):
    async with opened(tmp_path) as log:
        fence = await log.fence(S0)
        await write(log, fence, 1)
        await log.write_snapshot(fence, ShardSnapshot(1, 1, [b"x" * 300_000] * 3))
    change(tmp_path, "DELETE FROM chunk WHERE id = 2")
    async with opened(tmp_path) as log:
        with pytest.raises(Damaged, match="of the 3 slices of snapshot 1, 2 are there"):
            await log.load(await log.fence(S0))


async def test_an_interrupted_snapshot_changes_nothing_and_is_cleared_away(tmp_path):
    def broken():
        yield b"x" * 300_000
        raise ZeroDivisionError

    async with opened(tmp_path) as log:
        fence = await log.fence(S0)
        await write(log, fence, 1)
        with pytest.raises(ZeroDivisionError):
            await log.write_snapshot(fence, ShardSnapshot(1, 1, broken()))
        assert list((await log.load(fence)).records()) == [b"1" * 10]
        await log.write_snapshot(fence, ShardSnapshot(1, 1, [b"sum"]))
        assert list((await log.load(fence)).records()) == [b"sum"]
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        assert connection.execute("SELECT count(*) FROM chunk").fetchall() == [(1,)]
        assert connection.execute("SELECT count(*) FROM entry").fetchall() == [(0,)]
    connection.close()


async def test_what_is_asked_for_meanwhile_shares_a_commit(tmp_path):
    commits: list[int] = []
    async with opened(tmp_path, on_commit=lambda jobs, seconds: commits.append(jobs)) as log:
        fences = [await log.fence(ShardId(n)) for n in range(SHARDS)]
        commits.clear()
        await asyncio.gather(*(write(log, fence, *range(1, 40)) for fence in fences))
    assert sum(commits) == 39 * SHARDS
    assert max(commits) > 1


async def test_the_write_ahead_log_is_emptied_when_nothing_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "IDLE_S", HANG_S)
    emptied = threading.Event()
    checkpoint = writer.Writer._checkpoint

    def and_tell(self):
        checkpoint(self)
        emptied.set()

    monkeypatch.setattr(writer.Writer, "_checkpoint", and_tell)
    async with opened(tmp_path) as log:
        fence = await log.fence(S0)
        await write(log, fence, *range(1, 200), size=5_000)
        monkeypatch.setattr(log._writer._jobs, "_idle_s", 0.01)
        emptied.clear()
        await write(log, fence, 200, size=5_000)  # From then on the writer has nothing to do.
        grown = (tmp_path / f"{DATABASE}-wal").stat().st_size
        assert await asyncio.to_thread(emptied.wait, HANG_S)
        assert log._writer._to_checkpoint == 0
        await write(log, fence, *range(201, 300), size=5_000)
        # The second round went over the first: the file has not grown.
        assert (tmp_path / f"{DATABASE}-wal").stat().st_size == grown
