"""Many members of one group, from the first join to the last assignment."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.bench.figures import Figures, Goal
from tests.bench.load import Barrier, Fleet
from tests.bench.servers import Server, Usage, scratch

MEMBERS = 10_000
SIZES = (0.01, 0.1, 1.0)
"""Parts of the members: the work is to grow as they do."""


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
    return figures


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
