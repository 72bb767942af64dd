"""Many small groups at rest: what they weigh, and what their heartbeats cost."""

from __future__ import annotations

import asyncio
import time

from coordinator.runtime.memory import resident_bytes
from tests.bench.figures import Figures, Goal
from tests.bench.heartbeat import A_PROCESS, BEAT_EVERY_S
from tests.bench.load import Fleet
from tests.bench.resting import GENERATION, fill, members
from tests.bench.servers import Server, Usage, scratch

GROUPS, MEMBERS = 20_000, 5


def bench_fleet(groups: int = GROUPS, seconds: float = 15) -> Figures:
    """All figures in one run: loaded, and beating."""
    with scratch() as folder:
        with Server(folder) as empty:
            nothing = resident_bytes(empty.pid)
        data = folder / "data"
        asyncio.run(fill(data, groups, MEMBERS, static=True))
        began = time.monotonic()
        with Server(folder, "--data-dir", str(data)) as server:
            loaded_s = time.monotonic() - began
            resident = resident_bytes(server.pid) - nothing
            figures = asyncio.run(_beat(server, groups, seconds))
    return {
        f"{groups:,} groups of {MEMBERS}: start to serving, s": loaded_s,
        "resident beyond an empty server, MiB": resident / 2**20,
        "bytes a member": resident / (groups * MEMBERS),
    } | figures


async def _beat(server: Server, groups: int, seconds: float) -> Figures:
    usage = Usage(server.pid)
    async with Fleet(server.address) as fleet:
        fleet.adopt(members(groups), generation=GENERATION)
        timings = await fleet.beat_in_batches(
            A_PROCESS, every_s=BEAT_EVERY_S, seconds=seconds, on_steady=usage.start
        )
        percent = usage.percent()
    return {
        "beating every 3 s, 20 in a call: refused or lost": Goal(timings.failed, at_most=0),
        "beating every 3 s, 20 in a call: server's CPU, % of a core": Goal(percent, at_most=60),
        "beating every 3 s, 20 in a call: p99, ms": timings.percentile(99),
    }
