"""How long partitions stand idle in groups of either protocol, with the defaults of workers.

On virtual time, with a millisecond for each message: the figures are those of the protocols, and
the same in every run.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from coordinator.client import Partition, Worker
from coordinator.client.settings.setting import GroupProtocol
from coordinator.testing.running import VirtualTest
from tests.bench.figures import Figures

PROTOCOLS: tuple[GroupProtocol, ...] = ("classic", "session")
PARTITIONS = 6
ROW_S, MESSAGE_S = 0.02, 0.001
AWAY_S = 25.0


class _Rows:
    """Rows that are committed, one each 20 ms and partition."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self.at: dict[int, list[float]] = {n: [] for n in range(PARTITIONS)}

    def worker(self, protocol: GroupProtocol) -> Worker:
        worker = Worker("anywhere:1", "g", topics={"t": PARTITIONS}, protocol=protocol)

        @worker.handler
        async def handle(p: Partition) -> None:
            while True:
                await asyncio.sleep(ROW_S)
                await p.commit(p.position + 1)
                self.at[p.number].append(self.now_s())

        return worker

    def idle_times(self, since_s: float, until_s: float) -> list[float]:
        """The longest time of each partition between two rows."""
        found = []
        for times in self.at.values():
            seen = [since_s, *(t for t in times if since_s <= t <= until_s), until_s]
            found.append(max(b - a for a, b in itertools.pairwise(seen)))
        return found


Event = Callable[[Any, _Rows, GroupProtocol], Awaitable[None]]  # Any: a virtual group.


async def _comes(group: Any, rows: _Rows, protocol: GroupProtocol) -> None:
    _start(group, rows, protocol, "new")


async def _stops(group: Any, rows: _Rows, protocol: GroupProtocol) -> None:
    await group.processes[1].stop()


async def _is_killed(group: Any, rows: _Rows, protocol: GroupProtocol) -> None:
    group.processes[1].kill()


async def _is_deployed(group: Any, rows: _Rows, protocol: GroupProtocol) -> None:
    for process in list(group.processes):
        await process.stop()
        await group.advance(2)
        process.start()
        await group.advance(30)


async def _coordinator_is_away(group: Any, rows: _Rows, protocol: GroupProtocol) -> None:
    group.coordinator.kill()
    await group.advance(AWAY_S)
    group.coordinator.start()


EVENTS: dict[str, Event] = {
    "a worker comes": _comes,
    "a worker stops": _stops,
    "a worker is killed": _is_killed,
    "three workers are replaced, one by one": _is_deployed,
    f"the coordinator is away for {AWAY_S:.0f} s": _coordinator_is_away,
}


def _start(group: Any, rows: _Rows, protocol: GroupProtocol, name: str) -> None:
    group.start(rows.worker, protocol, name=name).delay(MESSAGE_S)


def _measured(protocol: GroupProtocol, event: Event) -> str:
    found = ""

    async def scenario(test: VirtualTest) -> None:
        nonlocal found
        group = test()
        rows = _Rows(lambda: group.now_s)
        for name in "abc":
            _start(group, rows, protocol, name)
        await group.advance(20)
        since_s, before = group.now_s, group.owners()
        await event(group, rows, protocol)
        await group.advance(60)
        idle_times = rows.idle_times(since_s, group.now_s)
        idle = sum(idle_s > 2 * ROW_S for idle_s in idle_times)
        moved = sum(before[p] != owner for p, owner in group.owners().items())
        longest_ms = max(idle_times) * 1000
        found = f"{idle} of {PARTITIONS} stand idle, {longest_ms:,.0f} ms at most; {moved} moved"

    test = VirtualTest()
    try:
        test.run(scenario, test)
    finally:
        test.close()
    return found


def bench_protocols(*, quick: bool) -> Figures:
    """Measure each event in a group of three workers and six partitions, a row each 20 ms."""
    return {
        f"{name}, {protocol}": _measured(protocol, event)
        for name, event in list(EVENTS.items())[: 1 if quick else None]
        for protocol in PROTOCOLS
    }
