"""Memory under churn: groups that come, work and go, and what the server keeps of them.

`tests.bench.short_lived` sends the calls. Whatever the server keeps of a group that is gone, of a
call or of a connection, adds up. So the last quarter of the run is compared with the second, by
the blocks that Python has handed out, by resident memory, and by the number of series in /metrics.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass

from coordinator.runtime.memory import resident_bytes
from coordinator.shard.placement import PLACES_REMEMBERED
from tests.bench.figures import Figures, Goal
from tests.bench.servers import Server, scrape, scratch
from tests.bench.short_lived import come_and_go, name_groups

AT_A_TIME = 8
SAMPLES = 40
MIB = 2**20


@dataclass(frozen=True, slots=True)
class _Sample:
    blocks: float
    resident_bytes: int
    series: int


def bench_churn(seconds: float) -> Figures:
    """Run it, one server beside one client, and say what has grown."""
    with scratch() as folder:
        flags = ("--data-dir", f"{folder}/data", "--metrics-listen", "127.0.0.1:0")
        # Groups have series of their own, and members that follow are waited for only shortly.
        more = ("--metrics-groups", "*", "--group-initial-rebalance-delay-ms", "10")
        with Server(folder, *flags, *more) as server:
            return asyncio.run(_churn(server, seconds))


async def _churn(server: Server, seconds: float) -> Figures:
    await name_groups(server.address, PLACES_REMEMBERED)
    numbers, until = itertools.count(), time.monotonic() + seconds
    samples = []
    async with asyncio.TaskGroup() as workers:
        for _ in range(AT_A_TIME):
            workers.create_task(come_and_go(server.address, numbers, until))
        for _ in range(SAMPLES):
            await asyncio.sleep(seconds / SAMPLES)
            samples.append(await asyncio.to_thread(_sample, server))
    standby, later = samples[SAMPLES // 4 : SAMPLES // 2], samples[-SAMPLES // 4 :]
    blocks = [min(sample.blocks for sample in part) for part in (standby, later)]
    resident = [min(sample.resident_bytes for sample in part) / MIB for part in (standby, later)]
    series = [min(sample.series for sample in part) for part in (standby, later)]
    return {
        "groups that came and went": next(numbers),
        "blocks of memory in the second quarter": blocks[0],
        "blocks in the last quarter, in those": Goal(blocks[1] / blocks[0], at_most=1.02),
        "resident memory in the second quarter, MiB": resident[0],
        "more of it in the last quarter, MiB": Goal(resident[1] - resident[0], at_most=4),
        "series in the last quarter, in those of the second": Goal(
            series[1] / series[0], at_most=1.02
        ),
        "seconds": seconds,
    }


def _sample(server: Server) -> _Sample:
    series = scrape(server.metrics)
    return _Sample(series["coordinator_allocated_blocks"], resident_bytes(server.pid), len(series))
