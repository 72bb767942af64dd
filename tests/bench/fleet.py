"""Many small groups: what they weigh, and what their restarts cost."""

from __future__ import annotations

import asyncio
import time

from coordinator.runtime.memory import resident_bytes
from tests.bench.figures import Figures, Goal
from tests.bench.heartbeat import A_PROCESS, BEAT_EVERY_S
from tests.bench.load import Fleet
from tests.bench.resting import (
    GENERATION,
    PROTOCOL,
    STATIC_SESSION_TIMEOUT_MS,
    SUBSCRIPTION,
    fill,
    group_id,
    instance_id,
    members,
)
from tests.bench.servers import Server, Usage, scrape, scratch, total

GROUPS, MEMBERS = 20_000, 5
AT_A_TIME = 500
"""Members that are being restarted at any time."""


def bench_fleet(groups: int = GROUPS, seconds: float = 15) -> Figures:
    """All figures in one run: loaded, beating, its server restarted, its members restarted."""
    with scratch() as folder:
        with Server(folder) as empty:
            nothing = resident_bytes(empty.pid)
        data = folder / "data"
        asyncio.run(fill(data, groups, MEMBERS, static=True))
        flags = ("--data-dir", str(data), "--metrics-listen", "127.0.0.1:0")
        began = time.monotonic()
        with Server(folder, *flags) as server:
            loaded_s = time.monotonic() - began
            resident = resident_bytes(server.pid) - nothing
            figures = asyncio.run(_beat(server, groups, seconds))
        began = time.monotonic()
        with Server(folder, *flags) as server:
            figures["the server restarted: serving again after s"] = time.monotonic() - began
            figures |= asyncio.run(_restart(server, groups))
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


async def _restart(server: Server, groups: int) -> Figures:
    """Rebalances after the server was restarted, and after a rolling restart of static members."""
    usage = Usage(server.pid)
    async with Fleet(server.address) as fleet:
        fleet.adopt(members(groups), generation=GENERATION)
        timings = await fleet.beat_in_batches(A_PROCESS, every_s=BEAT_EVERY_S, seconds=0)
        usage.start()
        began = time.monotonic()
        restarts = await fleet.restart(
            (
                (group, instance_id(number))
                for group in map(group_id, range(groups))
                for number in range(MEMBERS)
            ),
            protocol=PROTOCOL,
            metadata=SUBSCRIPTION,
            session_timeout_ms=STATIC_SESSION_TIMEOUT_MS,
            at_a_time=AT_A_TIME,
        )
        lasted = time.monotonic() - began
        percent = usage.percent()
        series = await asyncio.to_thread(scrape, server.metrics)
    restarted = groups * MEMBERS
    return {
        "the server restarted: members that were lost": Goal(timings.failed, at_most=0),
        "all members restarted one by one (KIP-345): s": lasted,
        "restarts/s": restarted / lasted,
        "failed": Goal(restarts.failed, at_most=0),
        "rebalances": Goal(total(series, "coordinator_rebalances_total"), at_most=0),
        "a restart (JoinGroup and SyncGroup): p50, ms": restarts.percentile(50),
        "a restart: p99, ms": restarts.percentile(99),
        "server's CPU meanwhile, % of a core": percent,
    }
