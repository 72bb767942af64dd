"""Damage copies of a data folder at random: `serve` and `log` agree on each.

    python -m tests.unit.storage.damage [DAMAGES] [SEED]

Exit status: 0 if all commands agreed on every copy, and nothing was lost silently.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import random
import shutil
import stat
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from coordinator.cli.main import main as coordinator
from coordinator.core.values.ids import ShardId
from coordinator.core.values.records import OffsetCommitted
from coordinator.runtime import codec, shard_runner
from coordinator.runtime.node import Node
from coordinator.runtime.stores import open_stores
from coordinator.runtime.watchers import Watchers
from coordinator.settings import Settings
from coordinator.storage.folder import DATABASE
from coordinator.storage.log import CannotOpen, Damaged, Entry, ShardSnapshot
from coordinator.storage.marker import MARKER
from coordinator.storage.sqlite import SqliteLog

SHARDS = 4
WAL, SHM = f"{DATABASE}-wal", f"{DATABASE}-shm"


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
            entry = Entry(number, fence.fence_epoch, number - 1, (record(n, number),))
            await log.append(fence, entry)
        if n == 1:
            sums = [record(n, number) for number in range(1, last - 2)]
            await log.write_snapshot(fence, ShardSnapshot(last - 3, last - 3, sums))


def make(at: Path) -> Folders:
    """Stores that are stopped after 12 entries a shard, which checkpoints, and killed after 20."""
    another = asyncio.run(_make(at / "others")).killed
    return replace(asyncio.run(_make(at)), another=another)


async def _make(at: Path) -> Folders:
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


async def served(folder: Path) -> tuple[str, dict[int, set[int]]]:
    """Reason why `serve` refuses, empty if it does not; and the offsets of each shard."""
    settings = Settings.of(data_dir=str(folder), shards=SHARDS)
    try:
        stores = await open_stores(settings.storage)
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


def told(action: str, folder: Path, *more: str) -> str:
    """Reason why a command refuses; empty if it does not."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as errors,
    ):
        status = coordinator(["log", action, str(folder), *more, "-o", "json"])
    refusal, found = errors.getvalue(), out.getvalue()
    assert (status == 0) == (refusal == ""), (status, refusal)
    if action == "verify" and found:
        assert all(shard["ok"] for shard in json.loads(found)) == (status == 0)
    return refusal


def copy_of(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target, symlinks=True, copy_function=copy_file)
    return target


def copy_file(source: str, target: str, *, follow_symlinks: bool = True) -> None:
    if stat.S_ISFIFO(os.lstat(source).st_mode):
        os.mkfifo(target)
    else:
        shutil.copyfile(source, target, follow_symlinks=follow_symlinks)


def ask_all(folder: Path, tmp_path: Path) -> str:
    """Reason why all commands refuse a folder; empty if none does."""
    copies = {name: copy_of(folder, tmp_path / name) for name in ("verify", "dump", "backup")}
    said = {
        "verify": told("verify", copies["verify"]),
        "dump": told("dump", copies["dump"]),
        "backup": told("backup", copies["backup"], str(tmp_path / "copy")),
    }
    with mock.patch.object(shard_runner, "SETTLE_AFTER_S", 0):
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
        with mock.patch.object(shard_runner, "SETTLE_AFTER_S", 0):
            assert asyncio.run(served(tmp_path / "copy")) == ("", everything)
    return said["serve"]


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


def check_at_random(seed: int, folders: Folders, tmp_path: Path) -> str:
    """Ask all commands about a copy with one random damage, see `ask_all`."""
    dice = random.Random(seed)
    folder = copy_of(dice.choice([folders.killed] * 3 + [folders.stopped]), tmp_path / "data")
    for name in (WAL, SHM):
        (folder / name).touch()
        if not (folder / name).stat().st_size:
            (folder / name).write_bytes(b"?")
    at_random(folder, dice)
    return ask_all(folder, tmp_path)


def damage_again_and_again(folder: Path, damages: int, seed: int) -> Counter[str]:
    """Count how often all commands refused, and how often all accepted."""
    folders = make(folder / "folders")
    verdicts: Counter[str] = Counter()
    for number in range(seed, seed + damages):
        place = folder / str(number)
        verdicts["refused" if check_at_random(number, folders, place) else "accepted"] += 1
        shutil.rmtree(place)
    return verdicts


def main() -> int:
    damages = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000
    with tempfile.TemporaryDirectory(prefix="damage-") as folder:
        print(dict(damage_again_and_again(Path(folder), damages, seed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
