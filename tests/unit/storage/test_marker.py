"""The marker of a used folder: what it lets through, what it refuses, and what it survives."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3

import apsw
import pytest

from coordinator.cli.main import main
from coordinator.core.values.ids import ShardId
from coordinator.core.values.records import OffsetCommitted
from coordinator.runtime import codec
from coordinator.storage import sqlite
from coordinator.storage.folder import DATABASE, LOCK
from coordinator.storage.log import CannotOpen, Damaged, Entry
from coordinator.storage.marker import MARKER, Marker, create_marker, read_marker
from coordinator.storage.sqlite import SqliteLog
from tests.unit.storage.conftest import SHARDS, opened

S0 = ShardId(0)


def record(number: int) -> bytes:
    return codec.encode(OffsetCommitted("g", "t", 0, number, committed_at_ms=5))


async def write(log, *sequences: int, shard: ShardId = S0) -> None:
    fence = await log.fence(shard)
    for n in sequences:
        await log.append(fence, Entry(n, fence.fence_epoch, n - 1, (record(n),)))


async def records(log, shard: ShardId = S0) -> list[int]:
    return [codec.decode(data).offset for data in (await log.read(shard)).records()]


def as_an_older_version_left_it(folder) -> None:
    (folder / MARKER).unlink()
    with sqlite3.connect(folder / DATABASE) as connection:
        connection.execute("DELETE FROM meta WHERE name = 'store'")
        connection.execute("DELETE FROM fence WHERE epoch = 0 OR shard = -1")
    connection.close()


def test_a_marker_is_what_was_written(tmp_path):
    marker = Marker(store=2**63 - 1, shards=16, share=(2, 3), entries=10**12, epochs=5)
    create_marker(tmp_path, marker)
    assert read_marker(tmp_path) == marker
    assert [path.name for path in tmp_path.iterdir()] == [MARKER]


def test_every_flipped_bit_of_a_marker_is_noticed(tmp_path):
    create_marker(tmp_path, Marker(store=1, shards=16))
    whole = (tmp_path / MARKER).read_bytes()
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / MARKER).write_bytes(flipped)
        with pytest.raises(Damaged, match="is not what was written"):
            read_marker(tmp_path)


async def test_the_marker_knows_of_an_entry_before_who_wrote_it_does(tmp_path):
    async with opened(tmp_path) as log:
        fence = await log.fence(S0)
        for n in range(1, 20):
            await log.append(fence, Entry(n, fence.fence_epoch, n - 1, (b"x",)))
            assert read_marker(tmp_path).entries == n
        # Refused, or written before: nothing is counted twice.
        await log.append(fence, Entry(19, fence.fence_epoch, 18, (b"x",)))
        assert read_marker(tmp_path).entries == 19


async def test_a_marker_that_is_behind_is_no_damage(tmp_path):
    """A power failure, or a kill between the commit and the marker, leaves such a marker."""
    async with opened(tmp_path) as log:
        await write(log, 1, 2)
        earlier = (tmp_path / MARKER).read_bytes()
        await write(log, 3)
    (tmp_path / MARKER).write_bytes(earlier)
    async with opened(tmp_path) as log:
        assert await records(log) == [1, 2, 3]


async def test_a_shard_without_a_row_is_noticed_whatever_the_totals_say(tmp_path):
    async with opened(tmp_path) as log:
        earlier = (tmp_path / MARKER).read_bytes()
        await write(log, 1)
    (tmp_path / MARKER).write_bytes(earlier)
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        connection.execute("DELETE FROM fence WHERE shard = 0")
        connection.execute("DELETE FROM entry")
    connection.close()
    with pytest.raises(Damaged, match="rows are missing from its table fence or meta: 0"):
        SqliteLog(tmp_path, shards=SHARDS)


async def test_a_folder_of_an_older_version_is_adopted(tmp_path):
    async with opened(tmp_path) as log:
        await write(log, 1, 2)
    as_an_older_version_left_it(tmp_path)
    assert main(["log", "verify", str(tmp_path)]) == 0
    async with opened(tmp_path) as log:
        assert await records(log) == [1, 2]
        assert read_marker(tmp_path).entries == 2
    assert main(["log", "verify", str(tmp_path)]) == 0


async def test_what_was_damaged_before_it_was_adopted_is_not_adopted(tmp_path, capsys):
    async with opened(tmp_path) as log:
        await write(log, 1, 2)
    as_an_older_version_left_it(tmp_path)
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        connection.execute("DELETE FROM fence")
    connection.close()
    with pytest.raises(Damaged, match="rows of shards that are not in its table fence: 0"):
        SqliteLog(tmp_path, shards=SHARDS)
    assert main(["log", "verify", str(tmp_path)]) == 1
    assert "not in its table fence: 0" in capsys.readouterr().err


@pytest.mark.parametrize("step", ["prepare", "identify", "create_marker"])
async def test_an_interrupted_first_start_is_begun_again(tmp_path, monkeypatch, step):
    class Killed(BaseException):
        pass

    def killed(*_) -> None:
        raise Killed

    place = sqlite if step == "create_marker" else sqlite.schema
    with monkeypatch.context() as patch:
        patch.setattr(place, step, killed)
        with pytest.raises(Killed):
            SqliteLog(tmp_path, shards=SHARDS)
    async with opened(tmp_path) as log:
        await write(log, 1)


async def test_tables_that_never_were_are_made(tmp_path):
    """SQLite had made the file, and nothing in it."""
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    (tmp_path / f"{MARKER}.new").write_bytes(b"coordinator st")
    async with opened(tmp_path) as log:
        await write(log, 1)


async def test_a_folder_that_is_copied_or_moved_goes_on_working(tmp_path):
    async with opened(tmp_path / "a") as log:
        await write(log, 1)
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        await write(log, 2)
    os.rename(tmp_path / "a", tmp_path / "c")
    async with opened(tmp_path / "b") as log:
        assert await records(log) == [1]
        await write(log, 2)
    async with opened(tmp_path / "c") as log:
        assert await records(log) == [1, 2]
    os.symlink(tmp_path / "c", tmp_path / "d")
    async with opened(tmp_path / "d") as log:
        await write(log, 3)


async def test_the_database_alone_can_be_put_into_a_new_folder(tmp_path):
    async with opened(tmp_path / "a") as log:
        await write(log, 1)
    (tmp_path / "b").mkdir()
    shutil.copy(tmp_path / "a" / DATABASE, tmp_path / "b")
    async with opened(tmp_path / "b") as log:
        assert await records(log) == [1]


async def test_nothing_is_changed_in_a_folder_that_is_refused(tmp_path):
    """Else the write-ahead log of another folder would be moved into the database on closing."""
    async with opened(tmp_path / "a") as one, opened(tmp_path / "b") as other:
        await write(one, 1)
        await write(other, 1, 2)
        shutil.copytree(tmp_path / "a", tmp_path / "c")
        shutil.copy(tmp_path / "b" / f"{DATABASE}-wal", tmp_path / "c")
    names = (DATABASE, f"{DATABASE}-wal", MARKER)
    before = [(tmp_path / "c" / name).read_bytes() for name in names]
    for _ in range(2):
        with pytest.raises(Damaged, match="that of another store"):
            SqliteLog(tmp_path / "c", shards=SHARDS)
    assert [(tmp_path / "c" / name).read_bytes() for name in names] == before


async def test_a_lock_that_is_a_link_does_not_empty_its_target(tmp_path):
    (tmp_path / "letter").write_text("to a friend")
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / LOCK).symlink_to(tmp_path / "letter")
    with pytest.raises(CannotOpen, match="symbolic link"):
        SqliteLog(folder, shards=SHARDS)
    assert (tmp_path / "letter").read_text() == "to a friend"


async def test_a_store_that_breaks_while_it_is_used_is_damaged_and_not_tried_for_ever(tmp_path):
    async with opened(tmp_path) as log:
        await write(log, 1)
        connection = apsw.Connection(str(tmp_path / DATABASE))
        connection.execute("DROP TABLE fence")
        connection.close()
        with pytest.raises(Damaged, match="no such table"):
            await asyncio.wait_for(log.fence(S0), 30)  # noqa: TID251


async def test_a_backup_is_not_made_over_another_store(tmp_path, capsys):
    async with opened(tmp_path / "a") as log:
        await write(log, 1)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / MARKER).touch()
    assert main(["log", "backup", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert "already" in capsys.readouterr().err


# --- Shares -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "wanted", "words"),
    [
        (
            (1, 2),
            (1, 1),
            "share 1 of 2, and not all shards: start the folder above it with --nodes 2",
        ),
        ((1, 2), (2, 2), "share 1 of 2, and not share 2 of 2: .* --share 1/2"),
        ((1, 2), (1, 3), "share 1 of 2, and not share 1 of 3: .* --nodes 2"),
        ((1, 1), (1, 2), "all shards, and not share 1 of 2: start it without --share"),
    ],
)
async def test_a_folder_remembers_its_share(tmp_path, made, wanted, words):
    async with opened(tmp_path, share=made) as log:
        await write(log, 1, shard=S0)
    with pytest.raises(CannotOpen, match=words):
        SqliteLog(tmp_path, shards=SHARDS, share=wanted)
    async with opened(tmp_path, share=made) as log:
        assert await records(log) == [1]


async def test_groups_of_another_share_are_not_adopted(tmp_path):
    async with opened(tmp_path) as log:
        await write(log, 1, shard=ShardId(1))
    as_an_older_version_left_it(tmp_path)
    with pytest.raises(CannotOpen, match="not in share 1 of 2"):
        SqliteLog(tmp_path, shards=SHARDS, share=(1, 2))
    async with opened(tmp_path, share=(2, 2)) as log:
        assert await records(log, ShardId(1)) == [1]
