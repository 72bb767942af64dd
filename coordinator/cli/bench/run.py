"""One benchmark or all of them, printed and written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from coordinator.cli.bench.assign import bench_assign
from coordinator.cli.bench.cluster import bench_cluster
from coordinator.cli.bench.figures import Figures, machine
from coordinator.cli.bench.journal import bench_journal
from coordinator.cli.bench.log import bench_log
from coordinator.cli.bench.service import bench_barrier, bench_heartbeat, with_server
from coordinator.cli.bench.timers import bench_timer


def bench(
    what: str, members: int | None, seconds: float, file: Path | None, store: str | None
) -> int:
    """Run one benchmark, or all that need nothing else; the exit status is 0."""
    benchmarks: dict[str, Callable[[], Figures]] = {
        "timer": bench_timer,
        "assign": bench_assign,
        "journal": bench_journal,
        "log": lambda: bench_log(members),
        "heartbeat": lambda: with_server(
            lambda address, pid: asyncio.run(
                bench_heartbeat(address, pid, members or 2_000, seconds)
            )
        ),
        "barrier": lambda: with_server(
            lambda address, _: asyncio.run(bench_barrier(address, members or 1_000))
        ),
    }
    if store is not None:
        benchmarks["cluster"] = lambda: bench_cluster(store, members)
    if what == "spark":  # Takes minutes, and an extra: not one of all.
        benchmarks["spark"] = lambda: _bench_spark(members)
    results: dict[str, Figures] = {"machine": machine()}
    results |= {name: run() for name, run in benchmarks.items() if what in (name, "all")}
    for name, figures in results.items():
        print(f"\n{name}")
        for figure, value in figures.items():
            shown = f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
            print(f"  {figure:56}  {shown}")
    if file is not None:
        file.write_text(json.dumps(results, indent=2) + "\n")
    return 0


def _bench_spark(batches: int | None) -> Figures:
    from coordinator.cli.bench.spark import bench_spark

    return bench_spark(batches)
