"""The service as its clients meet it: a server process, its CPU, memory and metrics."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tests.bench.figures import CannotMeasure

T = TypeVar("T")


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for the files of a run, removed at its end.

    It is below `build` in the current folder: that is on a disk, as data folders are, where the
    system's temporary folder may be memory; and git ignores what a killed run leaves behind.
    """
    above = Path.cwd() / "build"
    above.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=above) as folder:
        yield Path(folder)


def with_server(run: Callable[[str, int], T], *more: str) -> T:
    """Run against a server process of its own, with a store of its own unless flags say else.

    Args:
        run: takes its address and its process id.
        more: flags of `coordinator serve`.
    """
    with scratch() as folder:
        with Server(folder, "--data-dir", f"{folder}/data", *more) as server:
            return run(server.address, server.pid)


class Server:
    """A server process. Use it as a context manager; it serves once that is entered.

    Args:
        folder: takes its log: a pipe nobody reads would stop it.
        more: flags of `coordinator serve`.
        tree: a checkout whose code it runs; None: the code of this process.
    """

    def __init__(
        self,
        folder: Path,
        *more: str,
        tree: Path | None = None,
    ) -> None:
        self._log = folder / f"log-{next(_numbers)}"
        flags = ["--listen", "127.0.0.1:0", "--metrics-listen", "", "--console-listen", ""]
        flags += ["--log-format", "json", *more]
        with self._log.open("w") as file:
            self._process = subprocess.Popen(  # noqa: S603  # Our own program.
                [sys.executable, "-m", "coordinator", "serve", *flags],
                stderr=file,
                cwd=tree,
                env=None if tree is None else environment(tree),
            )
        self.pid = self._process.pid
        self.address = self.metrics = self.kafka = ""

    def __enter__(self) -> Server:
        serving = self._wait()
        self.address, self.metrics = str(serving["address"]), str(serving["metrics"])
        self.kafka = str(serving.get("kafka") or "")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def _wait(self) -> dict[str, Any]:
        """The log line with the server's addresses, once it serves."""
        while self._process.poll() is None:
            for line in self._log.read_text().splitlines():
                if line.startswith("{"):
                    entry: dict[str, Any] = json.loads(line)
                    if entry["event"] == "serving":
                        return entry
            time.sleep(0.05)
        raise CannotMeasure(
            f"the server ended with {self._process.returncode}: {self._log.read_text()}"
        )


_numbers = itertools.count(1)


def environment(tree: Path) -> dict[str, str]:
    """Variables with which Python, started in a checkout, runs the code of that checkout."""
    return {**os.environ, "PYTHONPATH": str(tree)}


def scrape(url: str) -> dict[str, float]:
    """The series of /metrics by name and labels, as they are written there."""
    with urllib.request.urlopen(url) as page:  # noqa: S310  # Our own server.
        lines = page.read().decode().splitlines()
    series = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in series}


def total(series: dict[str, float], name: str) -> float:
    """The sum of a metric over its labels."""
    return sum(value for key, value in series.items() if key.partition("{")[0] == name)


def cpu_s(pid: int) -> float:
    """CPU seconds a process has used, all its threads together; 0 where that cannot be asked."""
    try:
        return time.clock_gettime(~pid << 3 | _SCHED)
    except OSError:
        return 0.0


_SCHED = 2
"""Linux's clock of a process in nanoseconds: `CPUCLOCK_SCHED` of its posix-timers."""


class Usage:
    """The CPU that a process uses from now on, or from `start` on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.start()

    def start(self) -> None:
        """Begin anew."""
        self._cpu, self._began = cpu_s(self._pid), time.monotonic()

    def us_each(self, number: int) -> float:
        """Microseconds until now, for each of so many."""
        return 1e6 * (cpu_s(self._pid) - self._cpu) / number

    def percent(self) -> float:
        """Until now; 100 is all of one core."""
        return 100 * (cpu_s(self._pid) - self._cpu) / (time.monotonic() - self._began)
