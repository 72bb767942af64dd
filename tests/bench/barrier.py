"""Many members of one group, from the first join to the last assignment."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from coordinator.runtime.memory import resident_bytes
from tests.bench import h2load
from tests.bench.figures import Figures, Goal, percentile
from tests.bench.load import Barrier, Fleet, heartbeat, join
from tests.bench.resting import GENERATION, fill, group_id, member_id
from tests.bench.servers import Server, Usage, scrape, scratch

MEMBERS = 10_000
SIZES = (0.01, 0.1, 1.0)
"""Parts of the members: the work is to grow as they do."""
BEATS_A_SECOND = 100
POLL_S = 0.1
PARKED = 'coordinator_parked_calls{kind="join"}'


def bench_barrier(members: int | None = None) -> Figures:
    """All figures in one run, each on a server of its own."""
    most = members or MEMBERS
    figures: Figures = {}
    cpu_a_member = {}
    sizes = [max(1, int(most * part)) for part in SIZES]
    for size in sizes:
        barrier, cpu_a_member[size] = form(size, two_phase=True)
        figures |= {
            f"{size:,} members: Stable, but for the initial delay, after s": Goal(
                barrier.work_s, at_most=12
            ),
            f"{size:,} members: calls lost": Goal(barrier.failed, at_most=0),
            f"{size:,} members: server's CPU, us a member": cpu_a_member[size],
        }
    most, smaller = sizes[-1], sizes[-2]
    figures[f"a member's CPU among {most:,}, in that among {smaller:,}"] = (
        cpu_a_member[most] / cpu_a_member[smaller]
    )
    barrier, _ = form(most, two_phase=False)
    figures["with ids from the start: calls lost"] = Goal(barrier.failed, at_most=0)
    figures["with ids from the start: Stable after s"] = Goal(barrier.work_s, at_most=8)
    return figures | _release(most)


def form(members: int, *, two_phase: bool, tree: Path | None = None) -> tuple[Barrier, float]:
    """One new group; what its members saw, and the server's CPU in microseconds a member.

    Args:
        tree: a checkout whose server it is; None: the code of this process.
    """

    async def all_join(address: str) -> Barrier:
        async with Fleet(address) as fleet:
            return await fleet.form_group("barrier", members, two_phase=two_phase)

    with scratch() as folder:
        with Server(folder, "--data-dir", f"{folder}/data", tree=tree) as server:
            usage = Usage(server.pid)
            barrier = asyncio.run(all_join(server.address))
            return barrier, usage.us_each(members)


# --- Parked joins and their release -------------------------------------------------------------


def _release(members: int) -> Figures:
    """Joins that h2load parks all at once; other members beat meanwhile.

    They send the same body, and so have no ids yet; nobody syncs.
    """
    if not h2load.is_installed():
        return {"release of parked joins": "not measured: no h2load (Debian: nghttp2-client)"}
    with scratch() as folder:
        data, group = folder / "data", group_id(0)
        asyncio.run(fill(data, 1))
        flags = ("--data-dir", str(data), "--metrics-listen", "127.0.0.1:0")
        with Server(folder, *flags) as server:
            before = resident_bytes(server.pid)
            beats = h2load.Timed(
                folder / "beats",
                server.address,
                "Heartbeat",
                heartbeat(group, member_id(0, group), GENERATION),
                rate=BEATS_A_SECOND,
            )
            joins = h2load.Timed(
                folder / "joins",
                server.address,
                "JoinGroup",
                join("barrier", two_phase=False),
                calls=members,
            )
            bytes_a_call = 0.0
            while joins.is_running():
                if scrape(server.metrics)[PARKED] == members:
                    bytes_a_call = (resident_bytes(server.pid) - before) / members
                time.sleep(POLL_S)
            joined, beaten = joins.calls(), beats.calls()
    released = [call.ended_s for call in joined]
    began = min(call.began_s for call in joined)
    meanwhile = [
        1000 * (call.ended_s - call.began_s)
        for call in beaten
        if began <= call.began_s <= max(released)
    ]
    return {
        f"{members:,} joins parked at once: lost": Goal(members - len(joined), at_most=0),
        "a parked call, KiB of the server's memory": Goal(bytes_a_call / 1024, at_most=25),
        "the last one released after the first, ms": Goal(
            1000 * (max(released) - min(released)), at_most=750
        ),
        "beats of others meanwhile: p99, ms": Goal(percentile(meanwhile, 99), at_most=100),
        "beats of others meanwhile: worst, ms": percentile(meanwhile, 100),
    }
