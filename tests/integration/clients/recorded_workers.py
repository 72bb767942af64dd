"""A run of the README's worker, for the picture.

`python -m tests.integration.clients.recorded_workers FILE` plays it and draws it, as
`deploy/workers.svg`. Two workers share the partitions, one is killed, the other takes over, and a
third one comes. A worker says itself when it begins a partition; committed offsets show how long it
has worked on it. The first worker runs the node.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from coordinator.client import embedded
from coordinator.operator.admin import GroupAdmin
from flights.history import SIGKILL, History, Strike, history_of
from flights.notes import TAKES, WORKS, Notebook, read_notes
from flights.picture import draw
from flights.processes import kill, stop
from tests.kit.documents import ROOT
from tests.kit.patience import HANG_S

PROGRAM = ROOT / "deploy/examples/worker.py"
GROUP, TOPIC = "billing", "invoices"
TITLE = "Two workers share twelve partitions; one is killed, and a third one comes"
NOTES = "notes"
PARTITIONS = 12
LOOK_S = 0.1
_BEGINS = re.compile(rf"{TOPIC}-(\d+) from \d+")


class _Process:
    """A process of the README's worker, and the notes that are taken of it."""

    def __init__(self, name: str, folder: Path, workers: dict[int, _Process]) -> None:
        self.name = name
        command = [sys.executable, PROGRAM]
        self.popen = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, text=True, process_group=0
        )
        self.notebook = Notebook(folder / NOTES, name)
        self._workers = workers
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            if begins := _BEGINS.match(line):
                partition = int(begins[1])
                self.notebook.note(TAKES, [partition])
                self._workers[partition] = self


class Run:
    """The steps of the run. `workers`: by partition, as they said."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._admin: GroupAdmin | None = None
        self._started_s = time.monotonic()
        self._offsets: dict[int, int] = {}
        self._processes = 0
        self._strikes: list[Strike] = []
        self.workers: dict[int, _Process] = {}
        self.steps: list[tuple[float, str]] = []

    def history(self) -> History:
        return history_of(read_notes(self._folder / NOTES, self._started_s), self._strikes)

    def start(self) -> _Process:
        self._processes += 1
        process = _Process(f"worker {self._processes}", self._folder, self.workers)
        self._stack.callback(stop, process.popen)
        self.steps.append((self._now(), f"{process.name} is started"))
        return process

    def kill(self, victim: _Process) -> None:
        self._look()
        self._strikes.append(Strike(victim.name, self._now(), SIGKILL))
        self.steps.append((self._now(), f"{victim.name} is killed"))
        for partition in self._of(victim):
            del self.workers[partition]  # Its last commit may be seen after its end.
        kill(victim.popen)

    def until_shared_by(self, *processes: _Process) -> None:
        share = PARTITIONS // len(processes)
        self._until(lambda: all(len(self._of(process)) == share for process in processes))

    def go_on(self, length_s: float) -> None:
        end_s = self._now() + length_s
        self._until(lambda: self._now() >= end_s)

    def _now(self) -> float:
        return time.monotonic() - self._started_s

    def _of(self, process: _Process) -> list[int]:
        return [number for number, worker in dict(self.workers).items() if worker is process]

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline_s = self._now() + HANG_S
        while not condition():
            assert self._now() < deadline_s, "the workers do not get on"
            self._look()
            time.sleep(LOOK_S)

    def _look(self) -> None:
        if self._admin is None:
            jobs = embedded(f"sqlite:///{self._folder / 'jobs'}", serve=False)
            self._admin = self._stack.enter_context(GroupAdmin(self._stack.enter_context(jobs)))
        offsets = {p.partition: offset for p, offset in self._admin.offsets(GROUP).items()}
        for partition, worker in dict(self.workers).items():
            if offsets.get(partition, 0) > self._offsets.get(partition, 0):
                worker.notebook.note(WORKS, [partition])
        self._offsets = offsets


def play(pause_s: float) -> tuple[History, list[tuple[float, str]]]:
    """Play the run; returns its history and its steps.

    Args:
        pause_s: time for which everybody works between two steps.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        run = Run(folder, stack)
        first = run.start()
        run.until_shared_by(first)  # A worker's number is its place in the order of beginnings.
        run.go_on(LOOK_S * 10)
        second = run.start()
        run.until_shared_by(first, second)
        run.go_on(max(pause_s, LOOK_S * 10))
        run.kill(second)
        run.until_shared_by(first)
        run.go_on(max(pause_s, LOOK_S * 10))
        third = run.start()
        run.until_shared_by(first, third)
        run.go_on(max(pause_s, LOOK_S * 10))
        return run.history(), run.steps


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description="draw a run of the README's worker")
    parser.add_argument("file", type=Path)
    parser.add_argument("--pause", type=float, default=12.0, metavar="SECONDS")
    options = parser.parse_args(argv)
    history, steps = play(options.pause)
    draw(options.file, TITLE, {GROUP: history}, steps)


if __name__ == "__main__":
    main(sys.argv[1:])
