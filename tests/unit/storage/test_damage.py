"""Damaged copies of a data folder: `serve` and `log` agree on each, and nothing is lost silently.

A copy of the folder of a running log is what SIGKILL leaves. Each damage is done to fresh
copies, and each command is asked about its own. All refuse, in a sentence that names the place
and what to do, or all accept, and then everything that was acknowledged is there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from coordinator.storage.folder import DATABASE, LOCK
from coordinator.storage.marker import MARKER
from tests.unit.storage.damage import (
    SHM,
    WAL,
    Folders,
    ask_all,
    check_at_random,
    copy_of,
    damage_again_and_again,
    make,
)

SEEDS, MORE = 12, 40
REFUSED, ACCEPTED, EITHER = "refused", "accepted", "either"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return make(tmp_path_factory.mktemp("folders"))


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
def test_all_commands_agree_on_a_damage(folders, tmp_path, name):
    damage, expected = DAMAGES[name]
    folder = copy_of(folders.killed, tmp_path / "data")
    damage(folder, folders)
    said = ask_all(folder, tmp_path)
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
def test_a_folder_that_was_stopped_in_peace_is_no_different(folders, tmp_path, name):
    folder = copy_of(folders.stopped, tmp_path / "data")
    DAMAGES[name][0](folder, folders)
    assert ask_all(folder, tmp_path)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_all_commands_agree_on_bytes_that_are_damaged_at_random(folders, tmp_path, seed):
    check_at_random(seed, folders, tmp_path)


@pytest.mark.integration
def test_all_commands_agree_on_more_of_them(tmp_path):
    """Ten times as many by command: `python -m tests.unit.storage.damage`."""
    verdicts = damage_again_and_again(tmp_path, MORE, seed=1_000)
    assert verdicts["refused"] > 0
    assert verdicts["accepted"] > 0
    assert verdicts.total() == MORE
