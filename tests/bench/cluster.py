"""Benchmark of a shared store: time until another node leads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count, pairwise

from coordinator.operator.cluster import ClusterAdmin
from coordinator.runtime.stores import open_stores
from coordinator.settings import InvalidSetting
from coordinator.settings.sections import StorageConfig
from coordinator.shard.placement import shard_of
from coordinator.storage.log import CannotOpen, LogError
from tests.bench import resting
from tests.bench.figures import CannotMeasure, Figures, Goal, percentile
from tests.bench.probe import CommitProbe
from tests.bench.resting import MEMBERS, SHARDS, group_id, group_record
from tests.bench.servers import Server, scratch
from tests.kit.serving import free_port

FAST_MS, DEFAULT_MS = 500, 2_000
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Amount:
    """Size of a run: moves of a shard, and kills with short and with default sessions."""

    moves: int = 100
    fast_kills: int = 20
    default_kills: int = 5
    groups: int = 100_000

    @classmethod
    def quick(cls) -> Amount:
        """A minute: it only shows that the benchmark works."""
        return cls(moves=3, fast_kills=1, default_kills=1, groups=1_000)


def bench_cluster(store: str, groups: int | None, amount: Amount) -> Figures:
    """All figures in one run, under names of their own in a store that is there.

    Args:
        store: etcd://HOST:PORT,… or zookeeper://HOST:PORT,….
        groups: that are taken over; None: as `amount` says.
    Raises:
        CannotMeasure: the store cannot be used.
    """
    try:
        return _bench(store, groups or amount.groups, amount)
    except (InvalidSetting, CannotOpen, LogError) as error:
        raise CannotMeasure(f"{store}: {error}") from error


def _bench(store: str, groups: int, amount: Amount) -> Figures:
    names = (f"{store.rstrip('/')}/bench-{os.getpid()}-{number}" for number in count(1))
    figures: Figures = {}
    figures |= asyncio.run(_bench_hand_over(next(names), amount.moves))
    for session_ms, kills, goal_ms in (
        (FAST_MS, amount.fast_kills, 750),
        (DEFAULT_MS, amount.default_kills, 2_500),
    ):
        gaps = asyncio.run(_gaps_of_kills(next(names), session_ms, kills))
        what = f"owner killed, sessions of {session_ms:,} ms"
        figures[f"{what}: p50, ms"] = 1000 * statistics.median(gaps)
        figures[f"{what}: worst of {kills}, ms"] = Goal(1000 * max(gaps), at_most=goal_ms)
    for title, replicas, goal_ms in (("warm", 2, 500), ("cold", 1, 5_000)):
        took = asyncio.run(_take_over(next(names), replicas, groups))
        what = f"{groups:,} groups of {MEMBERS} taken over, {title}, ms"
        figures[what] = Goal(1000 * took, at_most=goal_ms)
    return figures


# --- Hand-over ----------------------------------------------------------------------------------


async def _bench_hand_over(store: str, moves: int) -> Figures:
    """An operator moves a shard to and fro; somebody writes to it all the time."""
    async with _nodes(store, (1, 2)) as nodes, _probed(nodes, 0) as probe:
        with ClusterAdmin(nodes[1].address) as admin:
            gaps = []
            for _ in range(moves):
                await _all_in_sync(admin)
                leader, other = (1, 2) if _leader(admin, 0) == 1 else (2, 1)
                began = time.monotonic()
                await asyncio.to_thread(admin.move, 0, (other, leader))
                await asyncio.to_thread(admin.elect, (0,))
                gaps.append(await _gap(probe, began))
    p50, p99 = (1000 * percentile(gaps, percent) for percent in (50, 99))
    return {
        f"planned hand-off to the first write, {moves} times, p50, ms": p50,
        "planned hand-off, p99, ms": Goal(p99, at_most=60),
    }


async def _gaps_of_kills(store: str, session_ms: int, kills: int) -> list[float]:
    """SIGKILL of the node that leads a shard; somebody writes to it all the time."""
    more = ("--store-session-timeout-ms", str(session_ms))
    async with _nodes(store, (1, 2, 3), *more) as nodes, _probed(nodes, 0) as probe:
        gaps = []
        for _ in range(kills):
            with ClusterAdmin(",".join(node.address for node in nodes.values())) as admin:
                await _all_in_sync(admin)
                await _until(lambda: _leader(admin, 0) in nodes)  # Used at once.
                owner = _leader(admin, 0)
            began = time.monotonic()
            nodes[owner].kill()
            gaps.append(await _gap(probe, began))
            await nodes.restart(owner)
    return gaps


async def _take_over(store: str, replicas: int, groups: int) -> float:
    """Seconds from the order to drain a node that leads all, until another serves every shard."""
    await _fill(store, groups)
    more = ("--replicas", str(replicas))
    async with _nodes(store, (1, 2), *more) as nodes:
        with ClusterAdmin(nodes[1].address) as admin:
            await _until(lambda: sorted(admin.addresses()) == [1, 2])
            await asyncio.to_thread(admin.drain, 2)
            await _until(lambda: _leaders(admin) == {1})
            async with contextlib.AsyncExitStack() as stack:
                probes = [
                    await stack.enter_async_context(_probed(nodes, shard, pause_s=0.02))
                    for shard in range(SHARDS)
                ]
                if replicas > 1:
                    # The one that is to take over may lead nothing yet, and follows everything.
                    await asyncio.to_thread(admin.drain, 2, undo=True)
                    await _all_in_sync(admin)
                else:
                    await asyncio.to_thread(admin.drain, 2, undo=True)
                began = time.monotonic()
                await asyncio.to_thread(admin.drain, 1)
                await _until(lambda: _leaders(admin) == {2})
                ends = [await _gap(probe, began, to_end=True) for probe in probes]
    return max(ends) - began


async def _fill(store: str, groups: int) -> None:
    stores = await open_stores(StorageConfig(store=store, shards=SHARDS))
    everybody = (group_record(group_id(number)) for number in range(groups))
    await resting.write(stores.log, everybody)
    await stores.log.close()
    if stores.coordination is not None:
        await stores.coordination.close()


class _Nodes(dict[int, Server]):
    """Server processes by number."""

    def __init__(self, start: Callable[[int], Server]) -> None:
        super().__init__()
        self._start = start

    async def restart(self, number: int) -> None:
        server = self[number] = self._start(number)
        await asyncio.to_thread(server.__enter__)


@contextlib.asynccontextmanager
async def _nodes(store: str, numbers: Sequence[int], *more: str) -> AsyncIterator[_Nodes]:
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        ports = {number: free_port() for number in numbers}  # Who comes back is found again.

        def start(number: int) -> Server:
            flags = ("--store", store, "--node-id", str(number), "--shards", str(SHARDS))
            return Server(folder, "--listen", f"127.0.0.1:{ports[number]}", *flags, *more)

        nodes = _Nodes(start)
        try:
            for number in numbers:
                await nodes.restart(number)
            yield nodes
        finally:
            for server in nodes.values():
                server.kill()


@contextlib.asynccontextmanager
async def _probed(
    nodes: _Nodes, shard: int, *, pause_s: float = 0.002
) -> AsyncIterator[CommitProbe]:
    group_id = next(f"probe-{n}" for n in count() if shard_of(f"probe-{n}", SHARDS) == shard)
    addresses = [server.address for server in nodes.values()]
    probe = CommitProbe(addresses, group_id, pause_s=pause_s)
    task = asyncio.create_task(probe.run())
    try:
        await _until(lambda: bool(probe.acknowledged))
        yield probe
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await probe.close()


async def _gap(probe: CommitProbe, began: float, *, to_end: bool = False) -> float:
    """The longest time without an answer that ended after a moment, once there is one after it.

    Args:
        to_end: when it ended, rather than how long it was.
    """
    asked = time.monotonic()
    await _until(lambda: probe.acknowledged[-1] > asked + 0.05)
    gaps = [(b - a, b) for a, b in pairwise(probe.acknowledged) if b > began]
    length, end = max(gaps)
    return end if to_end else length


def _leader(admin: ClusterAdmin, shard: int) -> int:
    return next((s.leader for s in admin.describe().shards if s.shard == shard), -1)


def _leaders(admin: ClusterAdmin) -> set[int]:
    return {shard.leader for shard in admin.describe().shards}


async def _all_in_sync(admin: ClusterAdmin) -> None:
    def are() -> bool:
        shards = admin.describe().shards
        return len(shards) == SHARDS and all(
            shard.leader >= 0 and len(shard.in_sync) == min(2, len(shard.replicas))
            for shard in shards
        )

    await _until(are)


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if await asyncio.to_thread(is_so):
                return
            await asyncio.sleep(0.01)
