"""Workers that run their node: from the start of a program to its first handler, and at rest."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.figures import CannotMeasure, Figures, Goal
from tests.bench.servers import cpu_s
from tests.kit.serving import rss_mib

PROGRAM = """
import sys
from coordinator.client import Worker

worker = Worker(sys.argv[1], "g", topics={"t": 4})

@worker.handler
def handle(p):
    if p.number == 0:
        print("called", flush=True)
    p.revoking.wait()

worker.run()
"""
START_S, CPU_PERCENT, MEMORY_MIB = 2.0, 1.0, 80.0
WAIT_S = 60.0


class _Program:
    """A worker in a process of its own, and the node that it runs."""

    def __init__(self, url: str) -> None:
        began = time.monotonic()
        words = [sys.executable, "-c", PROGRAM, url]
        self._process = subprocess.Popen(  # noqa: S603  # Our own program.
            words, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        if (told := self._process.stdout.readline().strip()) != "called":
            self.stop()
            raise CannotMeasure(f"the worker has ended, or said {told!r}")
        self.start_s = time.monotonic() - began
        pid = self._process.pid
        self.node = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(WAIT_S)


def bench_embedded(store: str, seconds: float, *, quick: bool) -> Figures:
    """Measure on SQLite, each start in a new folder; with `store`, on that database.

    Args:
        seconds: to look at a node at rest.
    """
    starts, percent, memory_mib = [], 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1 if quick else 7):
            program = _Program(store or f"sqlite:///{Path(folder, str(number))}")
            starts.append(program.start_s)
            if number == 0:
                before_s = cpu_s(program.node)
                time.sleep(seconds)
                percent = (cpu_s(program.node) - before_s) / seconds * 100
                memory_mib = rss_mib(program.node)
            program.stop()
    return {
        "store": store.partition(":")[0] or "sqlite",
        "start to first handler, s": Goal(statistics.median(starts), at_most=START_S),
        "slowest of them, s": max(starts),
        "node at rest, % of a core": Goal(percent, at_most=CPU_PERCENT),
        "node at rest, MiB": Goal(memory_mib, at_most=MEMORY_MIB),
        "load of the machine": os.getloadavg()[0],
    }
