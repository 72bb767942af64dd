"""Damaged copies of a data folder: `serve` and `log` agree on each, and nothing is lost silently.

A copy of the folder of a running log is what SIGKILL leaves. Each damage is done to fresh
copies, and each command is asked about its own. All refuse, in a sentence that names the place
and what to do, or all accept, and then everything that was acknowledged is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import sqlite3
import stat
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from coordinator.cli.main import main
from coordinator.core.ids import ShardId
from coordinator.core.records import OffsetCommitted
from coordinator.runtime import codec, shard_runner
from coordinator.runtime.node import Node
from coordinator.runtime.stores import open_stores
from coordinator.runtime.watchers import Watchers
from coordinator.settings import Settings
from coordinator.storage.folder import DATABASE, LOCK
from coordinator.storage.log import CannotOpen, Damaged, Entry, Snapshot
from coordinator.storage.marker import MARKER
from coordinator.storage.sqlite import SqliteLog

SHARDS = 4
WAL, SHM = f"{DATABASE}-wal", f"{DATABASE}-shm"
SEEDS = 12
REFUSED, ACCEPTED, EITHER = "refused", "accepted", "either"


def record(shard: int, number: int) -> bytes:
    """The offset tells which it is; some fill more than a page."""
    metadata = "x" * (6_000 if number % 7 == 0 else 40)
    return codec.encode(OffsetCommitted(f"g{shard}", "t", number, number, -1, metadata, number))


@dataclass(frozen=True, slots=True)
class Folders:
    """The folder as SIGKILL leaves it, an older copy of it, one that was stopped, and another."""

    killed: Path
    older: Path
    stopped: Path
    another: Path


async def fill(log: SqliteLog, first: int, last: int) -> None:
    for n in range(SHARDS):
        fence = await log.fence(ShardId(n))
        for number in range(first, last + 1):
            entry = Entry(number, fence.epoch, number - 1, (record(n, number),))
            await log.append(fence, entry)
        if n == 1:
            sums = [record(n, number) for number in range(1, last - 2)]
            await log.write_snapshot(fence, Snapshot(last - 3, last - 3, sums))


async def make(at: Path) -> Folders:
    """A store that is stopped after 12 entries a shard, which checkpoints, and killed after 20."""
    folders = Folders(at / "killed", at / "older", at / "stopped", at / "another")
    log = SqliteLog(folders.stopped, shards=SHARDS)
    await fill(log, 1, 12)
    await log.close()
    shutil.copytree(folders.stopped, folders.older)
    log = SqliteLog(folders.stopped, shards=SHARDS)
    await fill(log, 13, 20)
    shutil.copytree(folders.stopped, folders.killed)
    await log.close()
    return folders


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    at = tmp_path_factory.mktemp("folders")
    another = asyncio.run(make(at / "others")).killed
    return replace(asyncio.run(make(at)), another=another)


# --- What the commands say ----------------------------------------------------------------------


async def served(folder: Path) -> tuple[str, dict[int, set[int]]]:
    """Why `serve` refuses, empty: it does not; and the offsets that each shard has then."""
    settings = Settings(data_dir=str(folder), shards=SHARDS)
    try:
        stores = await open_stores(settings)
    except (CannotOpen, Damaged) as error:
        return str(error), {}
    ended: asyncio.Queue[str] = asyncio.Queue()
    watchers = Watchers(
        events=lambda *_: None,
        failure=lambda what, _: ended.put_nowait(f"it tries for ever: {what}"),
        recovery=lambda _: None,
    )
    node = Node(settings, watchers=watchers, log=stores.log)
    starting = asyncio.create_task(node.start("h", 1))
    starting.add_done_callback(lambda _: ended.put_nowait(""))
    found: dict[int, set[int]] = {}
    try:
        assert not await ended.get()
        await starting
        for n in range(SHARDS):
            loaded = await stores.log.read(ShardId(n))
            found[n] = {codec.decode(data).offset for data in loaded.records()}
    except Damaged as error:
        return str(error), {}
    finally:
        starting.cancel()
        await node.stop()
    return "", found


def told(action: str, folder: Path, capsys, *more: str) -> str:
    """Why a command refuses, empty: it does not."""
    capsys.readouterr()
    status = main(["log", action, str(folder), *more])
    said = capsys.readouterr()
    assert (status == 0) == (said.err == ""), (status, said.err)
    if action == "verify" and said.out:
        assert json.loads(said.out.splitlines()[-1]) == {"ok": status == 0}
    return said.err


def copy_of(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target, symlinks=True, copy_function=copy_file)
    return target


def copy_file(source: str, target: str, *, follow_symlinks: bool = True) -> None:
    if stat.S_ISFIFO(os.lstat(source).st_mode):
        os.mkfifo(target)
    else:
        shutil.copyfile(source, target, follow_symlinks=follow_symlinks)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(shard_runner, "SETTLE_AFTER_S", 0)


def ask_all(folder: Path, tmp_path: Path, capsys) -> str:
    """What all commands say of a folder: why they refuse, or nothing."""
    copies = {name: copy_of(folder, tmp_path / name) for name in ("verify", "dump", "backup")}
    said = {
        "verify": told("verify", copies["verify"], capsys),
        "dump": told("dump", copies["dump"], capsys),
        "backup": told("backup", copies["backup"], capsys, str(tmp_path / "copy")),
    }
    said["serve"], found = asyncio.run(served(folder))
    verdicts = {name: bool(words) for name, words in said.items()}
    assert len(set(verdicts.values())) == 1, said
    for words in filter(None, said.values()):
        assert len(words.splitlines()) == 1, words
        assert str(tmp_path) in words, "the place is named"
        assert any(
            advice in words
            for advice in ("restore a backup", "move it", "another data_dir", "link", "permissions")
        ), f"it does not say what to do: {words}"
    if not said["serve"]:
        everything = {shard: set(range(1, 21)) for shard in range(SHARDS)}
        assert found == everything, "something acknowledged is missing"
        assert asyncio.run(served(tmp_path / "copy")) == ("", everything)
    return said["serve"]


# --- The damages --------------------------------------------------------------------------------


def sql(folder: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(folder / DATABASE)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def into_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "something").touch()


def into_link(path: Path) -> None:
    target = path.parent / "elsewhere"
    target.mkdir()
    path.rename(target / path.name)
    path.symlink_to(target / path.name)


def truncated(path: Path, size_bytes: int) -> None:
    os.truncate(path, size_bytes)


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def overwritten(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def swapped(name: str, which: str):
    return lambda folder, folders: shutil.copy(getattr(folders, which) / name, folder / name)


def gone(*names: str):
    return lambda folder, folders: [(folder / name).unlink(missing_ok=True) for name in names]


def on(name: str, damage, *values):
    return lambda folder, folders: damage(folder / name, *values)


def by_sql(*statements: str):
    return lambda folder, folders: sql(folder, *statements)


def older_beside_newer(folder: Path, folders: Folders) -> None:
    shutil.copy(folders.older / DATABASE, folder / DATABASE)


DAMAGES = {
    "nothing": (lambda folder, folders: None, ACCEPTED),
    "only opened by somebody's SQLite": (by_sql("SELECT 1"), ACCEPTED),
    # Files, one by one.
    "database gone": (gone(DATABASE), REFUSED),
    "database and log gone": (gone(DATABASE, WAL, SHM), REFUSED),
    "log gone": (gone(WAL), REFUSED),
    "log and index gone": (gone(WAL, SHM), REFUSED),
    "index gone": (gone(SHM), ACCEPTED),
    "marker gone": (gone(MARKER), ACCEPTED),
    "lock gone": (gone(LOCK), ACCEPTED),
    "database empty": (on(DATABASE, truncated, 0), REFUSED),
    "database and log empty": (
        lambda folder, folders: [truncated(folder / DATABASE, 0), truncated(folder / WAL, 0)],
        REFUSED,
    ),
    "database empty, marker gone": (
        lambda folder, folders: [truncated(folder / DATABASE, 0), (folder / MARKER).unlink()],
        REFUSED,
    ),
    "log empty": (on(WAL, truncated, 0), REFUSED),
    "marker empty": (on(MARKER, truncated, 0), REFUSED),
    "lock empty": (on(LOCK, truncated, 0), ACCEPTED),
    "database zeroed": (on(DATABASE, zeroed), REFUSED),
    "log zeroed": (on(WAL, zeroed), REFUSED),
    "index zeroed": (on(SHM, zeroed), ACCEPTED),
    "marker zeroed": (on(MARKER, zeroed), REFUSED),
    "database without its second half": (
        lambda folder, folders: truncated(
            folder / DATABASE, (folder / DATABASE).stat().st_size // 2
        ),
        EITHER,
    ),
    "log without its last byte": (
        lambda folder, folders: truncated(folder / WAL, (folder / WAL).stat().st_size - 1),
        EITHER,
    ),
    "log without its second half": (
        lambda folder, folders: truncated(folder / WAL, (folder / WAL).stat().st_size // 2),
        REFUSED,
    ),
    "another kind of file": (
        lambda folder, folders: (folder / DATABASE).write_bytes(b"a letter to a friend" * 1000),
        REFUSED,
    ),
    "the count of free pages is wrong": (on(DATABASE, overwritten, 36, b"\0\0\0\x63"), EITHER),
    # Files of other kinds.
    **{
        f"{name} a folder": (on(name, into_folder), REFUSED)
        for name in (DATABASE, WAL, SHM, MARKER, LOCK)
    },
    **{
        f"{name} a link": (on(name, into_link), REFUSED)
        for name in (DATABASE, WAL, SHM, MARKER, LOCK)
    },
    **{
        f"{name} a link to nowhere": (
            lambda folder, folders, name=name: [
                (folder / name).unlink(),
                (folder / name).symlink_to(folder / "nowhere"),
            ],
            REFUSED,
        )
        for name in (DATABASE, WAL, MARKER, LOCK)
    },
    "database a pipe": (
        lambda folder, folders: [(folder / DATABASE).unlink(), os.mkfifo(folder / DATABASE)],
        REFUSED,
    ),
    # Files of other times and folders.
    "older database beside the newer log": (older_beside_newer, EITHER),
    "older database without a log": (
        lambda folder, folders: [
            older_beside_newer(folder, folders),
            *((folder / name).unlink(missing_ok=True) for name in (WAL, SHM)),
        ],
        REFUSED,
    ),
    "another's log": (swapped(WAL, "another"), REFUSED),
    "another's database": (swapped(DATABASE, "another"), REFUSED),
    "another's database and log": (
        lambda folder, folders: [
            swapped(name, "another")(folder, folders) for name in (DATABASE, WAL)
        ],
        REFUSED,
    ),
    "another's marker": (swapped(MARKER, "another"), REFUSED),
    # Inside.
    **{
        f"table {table} dropped": (by_sql(f"DROP TABLE {table}"), REFUSED)
        for table in ("meta", "fence", "entry", "chunk", "snapshot")
    },
    "all tables dropped": (
        by_sql(*(f"DROP TABLE {t}" for t in ("meta", "fence", "entry", "chunk", "snapshot"))),
        REFUSED,
    ),
    "trigger dropped": (by_sql("DROP TRIGGER claim"), REFUSED),
    "trigger changed": (
        by_sql(
            "PRAGMA writable_schema = ON",
            "UPDATE sqlite_master SET sql = replace(sql, '- 1', '- 0') WHERE name = 'claim'",
        ),
        REFUSED,
    ),
    **{
        f"{table} without rows": (by_sql(f"DELETE FROM {table}"), REFUSED)
        for table in ("meta", "fence", "entry", "chunk", "snapshot")
    },
    "a fence row deleted": (by_sql("DELETE FROM fence WHERE shard = 2"), REFUSED),
    "the row of the store deleted": (by_sql("DELETE FROM fence WHERE shard = -1"), REFUSED),
    "a fence row and all of its shard": (
        by_sql("DELETE FROM fence WHERE shard = 2", "DELETE FROM entry WHERE shard = 2"),
        REFUSED,
    ),
    "a fence row taken back, and its entries": (
        by_sql(
            "UPDATE fence SET sequence = 19 WHERE shard = 2",
            "DELETE FROM entry WHERE shard = 2 AND sequence = 20",
        ),
        REFUSED,
    ),
    "the epoch of a shard taken back": (
        by_sql("UPDATE fence SET epoch = 1 WHERE shard = 2"),
        REFUSED,
    ),
    "the last entry deleted": (by_sql("DELETE FROM entry WHERE sequence = 20"), REFUSED),
    "an entry in the middle deleted": (by_sql("DELETE FROM entry WHERE sequence = 14"), REFUSED),
    "the snapshot row deleted": (by_sql("DELETE FROM snapshot"), REFUSED),
    "an entry of a shard that is not there": (
        by_sql("DROP TRIGGER claim", "INSERT INTO entry VALUES (999, 77, 1, 1, x'00')"),
        REFUSED,
    ),
    "an entry that is cut": (
        by_sql("UPDATE entry SET frame = substr(frame, 1, 20) WHERE sequence = 15"),
        REFUSED,
    ),
    "fewer shards": (by_sql("UPDATE meta SET value = 2 WHERE name = 'shards'"), REFUSED),
    "more shards": (by_sql("UPDATE meta SET value = 8 WHERE name = 'shards'"), REFUSED),
    "no shards": (by_sql("UPDATE meta SET value = 0 WHERE name = 'shards'"), REFUSED),
    "a newer format": (by_sql("UPDATE meta SET value = 2 WHERE name = 'format'"), REFUSED),
    "a format that never was": (by_sql("UPDATE meta SET value = 0 WHERE name = 'format'"), REFUSED),
    "another number of the store": (
        by_sql("UPDATE meta SET value = 7 WHERE name = 'store'"),
        REFUSED,
    ),
    "a table more": (by_sql("CREATE TABLE somebody_elses (x)"), ACCEPTED),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_all_commands_agree_on_a_damage(folders, tmp_path, capsys, name):
    damage, expected = DAMAGES[name]
    folder = copy_of(folders.killed, tmp_path / "data")
    damage(folder, folders)
    said = ask_all(folder, tmp_path, capsys)
    assert expected in (EITHER, REFUSED if said else ACCEPTED), said


@pytest.mark.parametrize(
    "name",
    [
        "database gone",
        "database empty",
        "table meta dropped",
        "all tables dropped",
        "the count of free pages is wrong",
    ],
)
def test_a_folder_that_was_stopped_in_peace_is_no_different(folders, tmp_path, capsys, name):
    folder = copy_of(folders.stopped, tmp_path / "data")
    DAMAGES[name][0](folder, folders)
    assert ask_all(folder, tmp_path, capsys)


def at_random(folder: Path, dice: random.Random) -> None:
    """One damage of bytes in one file."""
    path = folder / dice.choice([DATABASE] * 4 + [WAL] * 4 + [SHM, MARKER])
    data = bytearray(path.read_bytes())
    at = dice.randrange(len(data))
    match dice.choice(("flip", "flip", "flip", "zero", "noise", "cut", "more")):
        case "flip":
            data[at] ^= 1 << dice.randrange(8)
        case "zero":
            length = min(len(data) - at, dice.choice((16, 512, 4096)))
            data[at : at + length] = bytes(length)
        case "noise":
            length = min(len(data) - at, dice.choice((16, 512, 4096)))
            data[at : at + length] = dice.randbytes(length)
        case "cut":
            del data[at:]
        case "more":
            data += dice.randbytes(1000)
    path.write_bytes(data)


def check_at_random(seed: int, folders: Folders, tmp_path: Path, capsys) -> None:
    dice = random.Random(seed)
    folder = copy_of(dice.choice([folders.killed] * 3 + [folders.stopped]), tmp_path / "data")
    for name in (WAL, SHM):
        (folder / name).touch()
        if not (folder / name).stat().st_size:
            (folder / name).write_bytes(b"?")
    at_random(folder, dice)
    ask_all(folder, tmp_path, capsys)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_all_commands_agree_on_bytes_that_are_damaged_at_random(folders, tmp_path, capsys, seed):
    check_at_random(seed, folders, tmp_path, capsys)


@pytest.mark.integration
@pytest.mark.parametrize("first", range(1000, 1400, 20))
def test_all_commands_agree_on_more_of_them(folders, tmp_path, capsys, first):
    for seed in range(first, first + 20):
        check_at_random(seed, folders, tmp_path / str(seed), capsys)
