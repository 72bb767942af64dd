"""The service as its clients meet it: a server process, and a fleet of members."""

from __future__ import annotations

import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from coordinator.cli.bench.figures import Figures
from coordinator.client.load import Fleet, Timings

T = TypeVar("T")
BEAT_EVERY_S = 3.0
EXTENDED_DELAY_S = 6.0


def with_server(run: Callable[[str, int], T], *more: str) -> T:
    """Run against a server process of its own, with a store of its own unless flags say else.

    Args:
        run: takes its address and its process id.
        more: flags of `coordinator serve`.
    """
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        with Server(Path(folder), "--data-dir", f"{folder}/data", *more) as server:
            return run(server.address, server.pid)


class Server:
    """A server process. Use it as a context manager; it serves once that is entered.

    Args:
        folder: takes its log: a pipe nobody reads would stop it.
        more: flags of `coordinator serve`.
    """

    def __init__(self, folder: Path, *more: str) -> None:
        self._log = folder / f"log-{next(_numbers)}"
        flags = ["--listen", "127.0.0.1:0", "--metrics-listen", "", "--console-listen", ""]
        flags += ["--log-format", "json", *more]
        with self._log.open("w") as file:
            self._process = subprocess.Popen(  # noqa: S603  # Our own program.
                [sys.executable, "-m", "coordinator", "serve", *flags], stderr=file
            )
        self.pid = self._process.pid
        self.address = self.metrics = ""

    def __enter__(self) -> Server:
        serving = self._wait()
        self.address, self.metrics = str(serving["address"]), str(serving["metrics"])
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def _wait(self) -> dict[str, Any]:
        """What it says of where it serves, once it does."""
        while self._process.poll() is None:
            for line in self._log.read_text().splitlines():
                if line.startswith("{"):
                    entry: dict[str, Any] = json.loads(line)
                    if entry["event"] == "serving":
                        return entry
            time.sleep(0.05)
        raise RuntimeError(
            f"the server ended with {self._process.returncode}: {self._log.read_text()}"
        )


_numbers = itertools.count(1)


async def bench_heartbeat(address: str, pid: int, members: int, seconds: float) -> Figures:
    """Members that beat every 3 s, each with calls of its own; 20 a group."""
    async with Fleet(address) as fleet:
        await fleet.fill(members, group_size=20)
        began_cpu, began = cpu_s(pid), time.monotonic()
        timings = await fleet.beat(every_s=BEAT_EVERY_S, seconds=seconds)
        lasted = time.monotonic() - began
        cpu = cpu_s(pid) - began_cpu
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


def cpu_s(pid: int) -> float:
    """CPU seconds a process has used; 0 where /proc is missing."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """The memory a process has in use; 0 where /proc is missing."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
