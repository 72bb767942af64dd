"""Benchmark of the log: appends, and a SyncGroup that waits for one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from pathlib import Path

import apsw

from coordinator.core.values.ids import ShardId
from coordinator.runtime.stores import open_stores
from coordinator.settings.sections import StorageConfig
from coordinator.storage import schema
from coordinator.storage.group_commit import GroupCommit, QueuedJob
from coordinator.storage.log import Entry, GroupLog
from coordinator.storage.sqlite import SqliteLog
from tests.bench.figures import Figures, Goal, percentile, shown
from tests.bench.load import Fleet
from tests.bench.servers import scratch, with_server

WRITERS = 100
RECORD_BYTES = 400
ROUNDS, SECONDS = 5, 1.0
"""Number and length of turns; their medians are compared."""
OPEN_S = 20
"""How long a transaction stays open beside appends, which are watched as long before and after."""
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
    """Writers with one append under way each, as shards have; and two bare loops in turn."""
    ours, fenced, bare, took = [], [], [], []
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
        fenced.append(await _bare_appends(folder / f"fenced-{number}", is_fenced=True))
        bare.append(await _bare_appends(folder / f"bare-{number}", is_fenced=False))
    rate = statistics.median(ours)
    return _appended(ours, took) | {
        "a bare loop with the same group commit, records/s": statistics.median(bare),
        "ours, as a multiple of it": Goal(rate / statistics.median(bare), at_least=BARE_RATIO),
        "and of one with the same statement": rate / statistics.median(fenced),
        "records a commit, mean, in the last round": statistics.mean(commits),
    }


async def _bench_shared(store: str, rounds: int) -> Figures:
    """The same writers at a shared store."""
    ours, took = [], []
    is_database = store.startswith("postgres")
    for number in range(rounds):
        name = f"bench-{os.getpid()}-{number}"
        url = f"{store}?cluster={name}" if is_database else f"{store.rstrip('/')}/{name}"
        async with _shared_log(url) as log:
            latencies = await _our_appends(log)
        ours.append(len(latencies) / SECONDS)
        took += latencies
    beside = await _beside_a_transaction(store, OPEN_S if rounds > 1 else 1) if is_database else {}
    return _appended(ours, took) | beside


@contextlib.asynccontextmanager
async def _shared_log(url: str) -> AsyncIterator[GroupLog]:
    stores = await open_stores(StorageConfig(store=url, shards=WRITERS))
    try:
        yield stores.log
    finally:
        await stores.log.close()
        if stores.coordination is not None:
            await stores.coordination.close()


async def _beside_a_transaction(store: str, seconds: int) -> Figures:
    """Appends beside a transaction that stays open: the server may not clean up behind them."""
    import psycopg

    cluster = f"bench-{os.getpid()}-beside"
    took: list[float] = []
    rates: list[int] = []
    sizes: list[float] = []
    async with _shared_log(f"{store}?cluster={cluster}") as log:
        appends = asyncio.create_task(_our_appends(log, seconds=3 * seconds + 1, took=took))
        with psycopg.connect(store, autocommit=True) as observer, psycopg.connect(store) as other:
            size = "SELECT pg_table_size(%s), pg_indexes_size(%s)"
            for step in ("alone", "beside", "after"):
                if step == "beside":
                    other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    other.execute("SELECT count(*) FROM pg_class").fetchone()
                elif step == "after":
                    other.rollback()
                await asyncio.sleep(seconds - 1)
                before = len(took)
                await asyncio.sleep(1)
                rates.append(len(took) - before)
                table = f'"{cluster}".fence'
                sizes.append(sum(observer.execute(size, (table, table)).fetchone() or ()) / 2**20)
        await appends
    alone, beside, after = rates
    return {
        f"beside a transaction open for {seconds} s, as a multiple of appends before": beside
        / alone,
        f"{seconds} s after its end, as a multiple of appends before": after / alone,
        "table fence with its index: before, beside, after, MiB": ", ".join(map(shown, sizes)),
    }


def _appended(rates: list[float], took_s: list[float]) -> Figures:
    return {
        f"appends of {WRITERS} writers, records/s": statistics.median(rates),
        "append, p50, ms": 1000 * statistics.median(took_s),
        "append, p99, ms": 1000 * percentile(took_s, 99),
    }


async def _our_appends(
    log: GroupLog,
    on_ready: Callable[[], object] = lambda: None,
    *,
    seconds: float = SECONDS,
    took: list[float] | None = None,
) -> list[float]:
    """Seconds that each append took, also in `took` as they come."""
    took = [] if took is None else took
    fences = [await log.fence(ShardId(number)) for number in range(WRITERS)]
    on_ready()

    def append(number: int, sequence: int, record: bytes) -> Awaitable[None]:
        entry = Entry(sequence, fences[number].fence_epoch, sequence - 1, (record,))
        return log.append(fences[number], entry)

    await _write(append, seconds, took)
    return took


async def _write(
    append: Callable[[int, int, bytes], Awaitable[None]], seconds: float, took: list[float]
) -> None:
    """Append (writer, sequence, record) by each writer, and note the time of each in `took`."""
    until = time.monotonic() + seconds

    async def write(number: int) -> None:
        record = os.urandom(RECORD_BYTES)
        for sequence in count(1):
            began = time.monotonic()
            if began >= until:
                return
            await append(number, sequence, record)
            took.append(time.monotonic() - began)

    await asyncio.gather(*(write(number) for number in range(WRITERS)))


async def _bare_appends(file: Path, *, is_fenced: bool) -> float:
    """Records a second of as many writers that share commits in SQLite, and no more.

    Args:
        is_fenced: by the log's own tables and statement, which compare a record's epoch and number;
            False: rows in a table.
    """
    connection = apsw.Connection(str(file))
    schema.prepare(connection, WRITERS)
    schema.identify(connection, 1, range(WRITERS))
    add = "INSERT INTO entry (shard, epoch, sequence, frame) VALUES (?, ?, ?, ?)"
    if not is_fenced:
        connection.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, shard INTEGER, frame BLOB)")
        add = "INSERT INTO bare (shard, frame) VALUES (?, ?)"

    def commit(batch: list[QueuedJob]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(add, [asked.job for asked in batch])
        connection.execute("COMMIT")

    jobs = GroupCommit(commit, rest=lambda busy: None, end=connection.close, idle_s=SECONDS)
    took: list[float] = []

    def append(number: int, sequence: int, record: bytes) -> Awaitable[None]:
        return jobs.submit((number, 0, sequence, record) if is_fenced else (number, record))

    await _write(append, SECONDS, took)
    await jobs.close()
    return len(took) / SECONDS


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
