"""Benchmark of the log: appends, a SyncGroup that waits for one, and a large load."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import statistics
import time
from itertools import count
from pathlib import Path

import apsw

from coordinator.core.ids import ShardId
from coordinator.runtime.memory import resident_bytes
from coordinator.storage import schema
from coordinator.storage.folder import DATABASE
from coordinator.storage.log import Entry
from coordinator.storage.sqlite import SqliteLog
from tests.bench.figures import Figures, Goal, percentile
from tests.bench.load import Fleet
from tests.bench.resting import MEMBERS, fill
from tests.bench.servers import scratch, with_server

WRITERS = 100
RECORD_BYTES = 400
ROUNDS, SECONDS = 5, 1.0
"""Number and length of turns; their medians are compared."""
SYNCS, SYNC_ROUNDS, SYNC_PAUSE_S = 200, 3, 0.002
GROUPS = 100_000
BARE_INSERT = "INSERT INTO entry (shard, epoch, sequence, frame) VALUES (?, 1, ?, ?)"


def bench_log(groups: int | None = None, *, quick: bool = False) -> Figures:
    """All figures in one run.

    Args:
        groups: in the store that is loaded.
        quick: one round of appends and of SyncGroups, and a hundredth of the groups.
    """
    figures: Figures = {}
    with scratch() as folder:
        figures |= asyncio.run(_bench_appends(folder, 1 if quick else ROUNDS))
        sync_ms = _fdatasync_ms(folder)
    figures["fdatasync of one page, p50, ms"] = sync_ms
    figures |= _bench_sync(sync_ms, 1 if quick else SYNC_ROUNDS)
    figures |= _bench_load(groups or (GROUPS // 100 if quick else GROUPS))
    return figures


# --- Appends ------------------------------------------------------------------------------------


async def _bench_appends(folder: Path, rounds: int) -> Figures:
    """Writers with one append under way each, as shards have, beside two bare loops."""
    ours, bare, alone, took, batches = [], [], [], [], []
    for number in range(rounds):
        rate, latencies, commits = await _our_appends(folder / f"log-{number}")
        ours.append(rate)
        took += latencies
        batches.append(statistics.mean(commits))
        bare.append(await _bare_group_commit(folder / f"bare-{number}"))
        batch = max(1, round(batches[-1]))
        alone.append(await asyncio.to_thread(_bare_loop, folder / f"alone-{number}", batch))
    rate = statistics.median(ours)
    return {
        f"appends of {WRITERS} writers, records/s": rate,
        "append, p50, ms": 1000 * statistics.median(took),
        "append, p99, ms": 1000 * percentile(took, 99),
        "records a commit, mean": statistics.mean(batches),
        "bare loop with the same group commit, records/s": statistics.median(bare),
        "appends, in that loop": Goal(rate / statistics.median(bare), at_least=0.8),
        "bare loop that nobody waits for, records/s": statistics.median(alone),
        "appends, in the loop that nobody waits for": rate / statistics.median(alone),
    }


async def _our_appends(folder: Path) -> tuple[float, list[float], list[int]]:
    """Records a second, what each append took in seconds, and how many shared each commit."""
    commits: list[int] = []
    log = SqliteLog(folder, shards=WRITERS, on_commit=lambda jobs, seconds: commits.append(jobs))
    fences = [await log.fence(ShardId(number)) for number in range(WRITERS)]
    commits.clear()
    took: list[float] = []
    until = time.monotonic() + SECONDS

    async def write(number: int) -> None:
        record = os.urandom(RECORD_BYTES)
        for sequence in count(1):
            began = time.monotonic()
            if began >= until:
                return
            await log.append(fences[number], Entry(sequence, 1, sequence - 1, (record,)))
            took.append(time.monotonic() - began)

    await asyncio.gather(*(write(number) for number in range(WRITERS)))
    await log.close()
    return len(took) / SECONDS, took, commits


def _bare_loop(folder: Path, batch: int) -> float:
    """Records a second that reach the same table without anybody waiting for them."""
    connection = _bare_table(folder)
    frame = os.urandom(RECORD_BYTES + 44)  # As long as an entry of one record.
    began, written = time.monotonic(), 0
    while time.monotonic() < began + SECONDS:
        connection.execute("BEGIN IMMEDIATE")
        for shard in range(batch):
            connection.execute(BARE_INSERT, (shard, written, frame))
        connection.execute("COMMIT")
        written += batch
    lasted = time.monotonic() - began
    connection.close()
    return written / lasted


async def _bare_group_commit(folder: Path) -> float:
    """Records a second of as many writers that wait for a thread which does nothing but insert."""
    loop = asyncio.get_running_loop()
    asked: queue.SimpleQueue[tuple[asyncio.Future[None], int] | None] = queue.SimpleQueue()
    frame = os.urandom(RECORD_BYTES + 44)

    def insert() -> None:
        connection = _bare_table(folder)
        item = asked.get()
        while item is not None:
            batch = [item]
            with contextlib.suppress(queue.Empty):
                while item is not None:
                    item = asked.get_nowait()
                    if item is not None:
                        batch.append(item)
            connection.execute("BEGIN IMMEDIATE")
            for _, shard in batch:
                connection.execute(BARE_INSERT, (shard, 1, frame))
            connection.execute("COMMIT")
            loop.call_soon_threadsafe(answer, [future for future, _ in batch])
            if item is not None:
                item = asked.get()
        connection.close()

    def answer(futures: list[asyncio.Future[None]]) -> None:
        for future in futures:
            future.set_result(None)

    written = 0
    until = time.monotonic() + SECONDS

    async def write(number: int) -> None:
        nonlocal written
        while time.monotonic() < until:
            future = loop.create_future()
            asked.put((future, number))
            await future
            written += 1

    inserting = asyncio.create_task(asyncio.to_thread(insert))
    await asyncio.gather(*(write(number) for number in range(WRITERS)))
    asked.put(None)
    await inserting
    return written / SECONDS


def _bare_table(folder: Path) -> apsw.Connection:
    """The log's table without what makes it a log."""
    folder.mkdir()
    connection = apsw.Connection(str(folder / DATABASE))
    schema.prepare(connection, WRITERS)
    connection.execute("DROP TRIGGER claim")
    return connection


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


# --- Load ---------------------------------------------------------------------------------------


def _bench_load(groups: int) -> Figures:
    """A server that starts on a store of many groups, beside one that starts on none."""
    with scratch() as folder:
        asyncio.run(fill(folder, groups))
        size = (folder / DATABASE).stat().st_size
        empty = with_server(lambda _, pid: resident_bytes(pid))
        began = time.monotonic()
        # The server's clock starts here too: what is measured is the whole way to serving.
        full, lasted = with_server(
            lambda _, pid: (resident_bytes(pid), time.monotonic() - began),
            "--data-dir",
            str(folder),
        )
    members = groups * MEMBERS
    return {
        f"store of {groups:,} groups of {MEMBERS}, MiB": size / 2**20,
        "start to serving, s": Goal(lasted, at_most=10) if groups == GROUPS else lasted,
        "resident beyond an empty server, bytes a member": Goal(
            (full - empty) / members, at_most=1_024
        ),
    }
