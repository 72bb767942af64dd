"""`coordinator bench`: measures on this machine and prints ratios.

Absolute times on shared machines say little; what is compared here is measured in the
same run.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coordinator.client.load import Fleet, Timings
from timer.task import TimerTask
from timer.timer import Timer

Figures = dict[str, float | int | str]
ROUNDS = 15
LOOPS = 20_000
BEAT_EVERY_S = 3.0
EXTENDED_DELAY_S = 6.0


def bench(what: str, members: int | None, seconds: float, file: Path | None) -> int:
    """Run one benchmark, or all; the exit status is 0."""
    results: dict[str, Figures] = {"machine": machine()}
    if what in ("timer", "all"):
        results["timer"] = bench_timer()
    if what in ("heartbeat", "all"):
        results["heartbeat"] = _with_server(
            lambda address, pid: asyncio.run(
                bench_heartbeat(address, pid, members or 2_000, seconds)
            )
        )
    if what in ("barrier", "all"):
        results["barrier"] = _with_server(
            lambda address, _: asyncio.run(bench_barrier(address, members or 1_000))
        )
    for name, figures in results.items():
        print(f"\n{name}")
        for figure, value in figures.items():
            shown = f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
            print(f"  {figure:44}  {shown}")
    if file is not None:
        file.write_text(json.dumps(results, indent=2) + "\n")
    return 0


def machine() -> Figures:
    """What it was measured on."""
    import grpc

    return {
        "python": platform.python_version(),
        "grpcio": grpc.__version__,
        "cores": os.cpu_count() or 0,
        "system": platform.platform(),
    }


# --- Timer --------------------------------------------------------------------------------------


class _Task(TimerTask):
    __slots__ = ()

    def run(self) -> None:
        pass


class _Empty:
    __slots__ = ()

    def call(self, task: object, deadline_ms: int) -> None:
        pass


def bench_timer() -> Figures:
    """Raw timer operations beside an empty method call and asyncio's own timers."""
    timer = Timer(wheel_size=512)
    task, empty = _Task(), _Empty()
    loop = asyncio.new_event_loop()

    def nothing() -> None:
        for deadline_ms in range(30_000, 30_000 + LOOPS):
            empty.call(task, deadline_ms)

    def add_cancel() -> None:
        for deadline_ms in range(30_000, 30_000 + LOOPS):
            timer.add(task, deadline_ms)
            timer.cancel(task)

    def rearm() -> None:
        timer.add(task, 30_000)
        for deadline_ms in range(30_000, 30_000 + LOOPS):
            timer.rearm(task, deadline_ms)
        timer.cancel(task)

    def fresh() -> None:
        for deadline_ms in range(30_000, 30_000 + LOOPS):
            new = _Task()
            timer.add(new, deadline_ms)
            timer.cancel(new)

    def call_later() -> None:
        for _ in range(LOOPS):
            loop.call_later(30.0, nothing).cancel()

    best = _best_of({f.__name__: f for f in (nothing, add_cancel, rearm, fresh, call_later)})
    loop.close()
    return {
        "empty method call, ns": best["nothing"],
        "add + cancel, ns": best["add_cancel"],
        "lazy re-arm, ns": best["rearm"],
        "fresh timer + cancel, ns": best["fresh"],
        "asyncio call_later + cancel, ns": best["call_later"],
        "add + cancel, in empty calls (goal: 20)": best["add_cancel"] / best["nothing"],
        "asyncio, in add + cancel": best["call_later"] / best["add_cancel"],
        "fresh timer, in lazy re-arms": best["fresh"] / best["rearm"],
    }


def _best_of(loops: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Nanoseconds an operation, the best of several rounds taken in turn."""
    best = dict.fromkeys(loops, float("inf"))
    for _ in range(ROUNDS):
        for name, run in loops.items():
            began = time.perf_counter_ns()
            run()
            best[name] = min(best[name], (time.perf_counter_ns() - began) / LOOPS)
    return best


# --- Over gRPC ----------------------------------------------------------------------------------


def _with_server(run: Callable[[str, int], Figures]) -> Figures:
    """Run against a server process of its own."""
    flags = ["--listen", "127.0.0.1:0", "--metrics-listen", "", "--log-format", "json"]
    with tempfile.NamedTemporaryFile("r+") as log:  # A pipe nobody reads would stop the server.
        server = subprocess.Popen(  # noqa: S603  # Our own program.
            [sys.executable, "-m", "coordinator", "serve", *flags], stderr=log
        )
        try:
            while not (first := Path(log.name).read_text()).endswith("\n"):
                if server.poll() is not None:
                    raise RuntimeError(f"the server ended with {server.returncode}: {first}")
                time.sleep(0.05)
            entry: dict[str, Any] = json.loads(first.splitlines()[0])
            return run(entry["address"], server.pid)
        finally:
            server.terminate()
            server.wait()


async def bench_heartbeat(address: str, pid: int, members: int, seconds: float) -> Figures:
    """Members that beat every 3 s, each with calls of its own; 20 a group."""
    async with Fleet(address) as fleet:
        await fleet.fill(members, group_size=20)
        began_cpu, began = _cpu_s(pid), time.monotonic()
        timings = await fleet.beat(every_s=BEAT_EVERY_S, seconds=seconds)
        lasted = time.monotonic() - began
        cpu = _cpu_s(pid) - began_cpu
    return {
        "members": members,
        "heartbeats": len(timings.milliseconds),
        "heartbeats refused or lost": timings.failed,
        "p50, ms": timings.percentile(50),
        "p99, ms (goal at 2,000 members: 50)": timings.percentile(99),
        "server CPU, % of a core": 100 * cpu / lasted,
        "server CPU, us a heartbeat": 1e6 * cpu / max(1, len(timings.milliseconds)),
    }


async def bench_barrier(address: str, members: int) -> Figures:
    """One new group of many members, from the first join to the last assignment."""
    async with Fleet(address) as fleet:
        began = time.monotonic()
        timings: Timings = await fleet.form_group("barrier", members)
        lasted = time.monotonic() - began
    client_cpu = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "members": members,
        "calls lost": timings.failed,
        # Members that arrive within the delay extend it once: they all come in the first one.
        "initial delay, with one extension (KIP-134), s": EXTENDED_DELAY_S,
        "all joined after, s": timings.joined_after_s,
        "all assigned after, s": lasted,
        "beyond the delay, s (goal at 1,000: 2.5)": lasted - EXTENDED_DELAY_S,
        "client CPU, s": client_cpu.ru_utime + client_cpu.ru_stime,
    }


def _cpu_s(pid: int) -> float:
    """CPU seconds a process has used; 0 where /proc is missing."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
