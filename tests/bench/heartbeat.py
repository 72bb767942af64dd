"""Heartbeats: what one costs the server, and how many members one core keeps alive."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from coordinator.runtime.memory import resident_bytes
from tests.bench import h2load, resting
from tests.bench.figures import CannotMeasure, Figures, Goal
from tests.bench.load import Fleet, Timings, heartbeat, heartbeat_batch
from tests.bench.resting import GENERATION, fill, group_id, member_id
from tests.bench.servers import Server, Usage, scrape, scratch

BEAT_EVERY_S = 3.0
A_PROCESS = 20
"""Members that share one, and its calls."""
UNARY_MEMBERS, BATCHED_MEMBERS = 5_000, 100_000
CALLS, ROUNDS = 20_000, 5
LONGEST_PAUSE_S = "0.01"


@dataclass(frozen=True, slots=True)
class Load:
    """Size of a run. A quick one only shows that the benchmark works."""

    members: int = UNARY_MEMBERS
    batched: int = BATCHED_MEMBERS
    seconds: float = 15
    calls: int = CALLS
    rounds: int = ROUNDS

    @classmethod
    def quick(cls) -> Load:
        """Seconds, not minutes."""
        return cls(members=40, batched=2_000, seconds=1, calls=2_000, rounds=1)


def bench_heartbeat(load: Load) -> Figures:
    """All figures in one run."""
    figures = _cost(load)
    for name, members, beat in (
        ("alone", load.members, Fleet.beat),
        ("in batches", load.batched, _batches),
    ):
        figures |= _held_alive(name, members, load.seconds, beat)
    return figures


# --- What one costs -----------------------------------------------------------------------------


def _cost(load: Load) -> Figures:
    """CPU of closed-loop calls, compared in turn with handlers that return a constant."""
    if not h2load.is_installed():
        return {"what a heartbeat costs": "not measured: no h2load (Debian: nghttp2-client)"}
    took: dict[tuple[str, str], list[float]] = defaultdict(list)
    with scratch() as folder, contextlib.ExitStack() as running:
        ours = running.enter_context(serving(folder, 0))
        servers = {"ours": (ours.address, ours.pid), "constant": running.enter_context(constant())}
        for _ in range(load.rounds):
            for name, (address, pid) in servers.items():
                for kind, message in messages().items():
                    usage = Usage(pid)
                    h2load.send(address, kind, message, load.calls)
                    took[name, kind].append(usage.us_each(load.calls))
        sent = load.rounds * load.calls * (1 + A_PROCESS)
        counted = scrape(ours.metrics)["coordinator_heartbeats_total"]
    if counted != sent:
        raise CannotMeasure(f"{sent} heartbeats were sent and {counted:.0f} answered")
    us = {key: statistics.median(values) for key, values in took.items()}
    alone, batch = us["ours", "Heartbeat"], us["ours", "HeartbeatBatch"]
    return {
        "a heartbeat, us of the server's CPU": alone,
        "a handler that returns a constant, us": us["constant", "Heartbeat"],
        "a heartbeat, in constant handlers": Goal(alone / us["constant", "Heartbeat"], at_most=1.1),
        f"a batch of {A_PROCESS}, us": batch,
        f"a batch of {A_PROCESS}, in constant handlers": batch / us["constant", "HeartbeatBatch"],
        "a heartbeat of a batch, us": batch / A_PROCESS,
    }


def messages() -> dict[str, Message]:
    """A heartbeat and those of a process in one call, by the names of their methods."""
    group = group_id(0)
    beats = [heartbeat(group, member_id(n, group), GENERATION) for n in range(A_PROCESS)]
    return {"Heartbeat": beats[0], "HeartbeatBatch": heartbeat_batch(beats)}


@contextlib.contextmanager
def constant() -> Iterator[tuple[str, int]]:
    """Address and process of a server that answers with a constant."""
    command = [sys.executable, "-m", "tests.bench.constant"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}", process.pid
        finally:
            process.kill()


def serving(
    folder: Path,
    number: int,
    *,
    groups: int = 1,
    static: bool = False,
    more: Sequence[str] = (),
    tree: Path | None = None,
) -> Server:
    """A server with groups of 20 at rest.

    Args:
        number: of its data folder.
        static: with static members, whose sessions last for half an hour.
        more, tree: as of `Server`.
    """
    data = folder / f"data-{number}"
    asyncio.run(fill(data, groups, A_PROCESS, static=static))
    metrics = ("--metrics-listen", "127.0.0.1:0")
    return Server(folder, "--data-dir", str(data), *metrics, *more, tree=tree)


# --- How many are held alive --------------------------------------------------------------------

Beating = Callable[..., Coroutine[Any, Any, Timings]]  # Any: the loop's business.


def _batches(fleet: Fleet, **how: Any) -> Coroutine[Any, Any, Timings]:
    return fleet.beat_in_batches(A_PROCESS, **how)


def _held_alive(name: str, members: int, seconds: float, beat: Beating) -> Figures:
    """Members of groups of 20 that beat every 3 s; the client is in this process."""
    with scratch() as folder:
        with serving(folder, 0, groups=members // A_PROCESS) as server:
            return asyncio.run(_hold(name, members, seconds, beat, server))


async def _hold(name: str, members: int, seconds: float, beat: Beating, server: Server) -> Figures:
    usage = Usage(server.pid)
    before = resident_bytes(server.pid)
    async with Fleet(server.address) as fleet:
        fleet.adopt(resting.members(members // A_PROCESS, A_PROCESS), generation=GENERATION)
        timings = await beat(fleet, every_s=BEAT_EVERY_S, seconds=seconds, on_steady=usage.start)
        percent = usage.percent()
        series = await asyncio.to_thread(scrape, server.metrics)
    what = f"{members:,} members {name}"
    full = 'coordinator_gc_pause_seconds_{}generation="2"{}'
    within = series[full.format("bucket{", f',le="{LONGEST_PAUSE_S}"' + "}")]
    return {
        f"{what}: refused or lost": timings.failed,
        f"{what}: server's CPU, % of a core": Goal(percent, at_most=60),
        f"{what}: p50, ms": timings.percentile(50),
        f"{what}: p99, ms": Goal(timings.percentile(99), at_most=10)
        if beat is Fleet.beat
        else timings.percentile(99),
        f"{what}: worst, ms": timings.percentile(100),
        f"{what}: full collections over 10 ms": series[full.format("count{", "}")] - within,
        f"{what}: server's memory, MiB": resident_bytes(server.pid) / 2**20,
        f"{what}: more of it than before, MiB": (resident_bytes(server.pid) - before) / 2**20,
        f"{what}: seconds": seconds,
    }
