"""Benchmark of the log: appends, and a SyncGroup that waits for one."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import apsw

from coordinator.core.ids import ShardId
from coordinator.runtime.stores import open_stores
from coordinator.settings.sections import StorageConfig
from coordinator.storage.group_commit import Asked, GroupCommit
from coordinator.storage.log import Entry, GroupLog
from coordinator.storage.sqlite import SqliteLog
from tests.bench.figures import Figures, Goal, percentile
from tests.bench.load import Fleet
from tests.bench.servers import scratch, with_server

WRITERS = 100
RECORD_BYTES = 400
ROUNDS, SECONDS = 5, 1.0
"""Number and length of turns; their medians are compared."""
BARE_RATIO = 0.8
SYNCS, SYNC_ROUNDS, SYNC_PAUSE_S = 200, 3, 0.002


def bench_log(store: str = "", *, quick: bool = False) -> Figures:
    """All figures in one run.

    Args:
        store: URL of a shared store, without its cluster, of which only appends are measured, under
            names of their own.
        quick: one round of appends and of SyncGroups.
    """
    if store:
        return asyncio.run(_bench_shared(store, 1 if quick else ROUNDS))
    figures: Figures = {}
    with scratch() as folder:
        figures |= asyncio.run(_bench_appends(folder, 1 if quick else ROUNDS))
        sync_ms = _fdatasync_ms(folder)
    figures["fdatasync of one page, p50, ms"] = sync_ms
    return figures | _bench_sync(sync_ms, 1 if quick else SYNC_ROUNDS)


# --- Appends ------------------------------------------------------------------------------------


async def _bench_appends(folder: Path, rounds: int) -> Figures:
    """Writers with one append under way each, as shards have; and a bare loop in turn."""
    ours, bare, took = [], [], []
    commits: list[int] = []
    for number in range(rounds):
        log = SqliteLog(
            folder / f"log-{number}",
            shards=WRITERS,
            on_commit=lambda jobs, _: commits.append(jobs),
        )
        latencies = await _our_appends(log, commits.clear)
        await log.close()
        ours.append(len(latencies) / SECONDS)
        took += latencies
        bare.append(await _bare_appends(folder / f"bare-{number}"))
    ratio = statistics.median(ours) / statistics.median(bare)
    return _appended(ours, took) | {
        "a bare loop with the same group commit, records/s": statistics.median(bare),
        "ours, as a multiple of it": Goal(ratio, at_least=BARE_RATIO),
        "records a commit, mean, in the last round": statistics.mean(commits),
    }


async def _bench_shared(store: str, rounds: int) -> Figures:
    """The same writers at a shared store."""
    ours, took = [], []
    for number in range(rounds):
        name = f"bench-{os.getpid()}-{number}"
        is_database = store.startswith("postgres")
        url = f"{store}?cluster={name}" if is_database else f"{store.rstrip('/')}/{name}"
        stores = await open_stores(StorageConfig(store=url, shards=WRITERS))
        latencies = await _our_appends(stores.log)
        await stores.log.close()
        if stores.coordination is not None:
            await stores.coordination.close()
        ours.append(len(latencies) / SECONDS)
        took += latencies
    return _appended(ours, took)


def _appended(rates: list[float], took_s: list[float]) -> Figures:
    return {
        f"appends of {WRITERS} writers, records/s": statistics.median(rates),
        "append, p50, ms": 1000 * statistics.median(took_s),
        "append, p99, ms": 1000 * percentile(took_s, 99),
    }


async def _our_appends(log: GroupLog, on_ready: Callable[[], object] = lambda: None) -> list[float]:
    """Seconds of each append."""
    fences = [await log.fence(ShardId(number)) for number in range(WRITERS)]
    on_ready()
    took: list[float] = []
    until = time.monotonic() + SECONDS

    async def write(number: int) -> None:
        record = os.urandom(RECORD_BYTES)
        for sequence in count(1):
            began = time.monotonic()
            if began >= until:
                return
            entry = Entry(sequence, fences[number].fence_epoch, sequence - 1, (record,))
            await log.append(fences[number], entry)
            took.append(time.monotonic() - began)

    await asyncio.gather(*(write(number) for number in range(WRITERS)))
    return took


async def _bare_appends(file: Path) -> float:
    """Records a second of as many writers that share commits of rows in SQLite, and no more."""
    connection = apsw.Connection(str(file))
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 0"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.execute("CREATE TABLE entry (id INTEGER PRIMARY KEY, shard INTEGER, frame BLOB)")

    def commit(batch: list[Asked]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        rows = [asked.job for asked in batch]
        connection.executemany("INSERT INTO entry (shard, frame) VALUES (?, ?)", rows)
        connection.execute("COMMIT")

    jobs = GroupCommit(commit, rest=lambda busy: None, end=connection.close, idle_s=SECONDS)
    until, done = time.monotonic() + SECONDS, 0

    async def write(number: int) -> None:
        nonlocal done
        record = os.urandom(RECORD_BYTES)
        while time.monotonic() < until:
            await jobs.ask((number, record))
            done += 1

    await asyncio.gather(*(write(number) for number in range(WRITERS)))
    await jobs.close()
    return done / SECONDS


def _fdatasync_ms(folder: Path) -> float:
    """Pace of the SyncGroups: an idle machine needs time to wake up."""
    took = []
    with (folder / "page").open("wb", buffering=0) as file:
        for number in range(300):
            time.sleep(SYNC_PAUSE_S)
            os.pwrite(file.fileno(), bytes(4096), number * 4096)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return 1000 * statistics.median(took)


# --- SyncGroup ----------------------------------------------------------------------------------


def _bench_sync(sync_ms: float, rounds: int) -> Figures:
    """The leader's SyncGroup over gRPC, with the log in memory and on the disk."""

    def run(*flags: str) -> float:
        async def syncs(address: str) -> float:
            async with Fleet(address) as fleet:
                return (await fleet.sync_alone("sync", SYNCS)).percentile(50)

        delay = ("--group-initial-rebalance-delay-ms", "0")
        return with_server(lambda address, _: asyncio.run(syncs(address)), *delay, *flags)

    # The best of several turns: what else the machine does only adds.
    pairs = [(run("--store", "memory"), run()) for _ in range(rounds)]
    memory, disk = (min(times) for times in zip(*pairs, strict=True))
    allowed = 1.5 * sync_ms + 0.5
    return {
        "SyncGroup, log in memory, p50, ms": memory,
        "SyncGroup, log on disk, p50, ms": disk,
        "durability adds, ms": disk - memory,
        "allowed: 1.5 fdatasync + 0.5 ms": allowed,
        "added, in what is allowed": Goal((disk - memory) / allowed, at_most=1),
    }
