"""A run of the README's worker, recorded for the picture.

`python -m tests.integration.clients.recorded_workers FILE` plays it and writes the file. Two
workers share the partitions, one is killed, the other takes over, and a third one comes. A worker
says itself when it begins a partition; committed offsets show how long it has worked on it. The
worker's program names the coordinator's address, so that port has to be free.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from coordinator.operator.admin import GroupAdmin
from flights.history import History
from flights.notes import TAKES, WORKS, Notebook
from flights.processes import kill, start_coordinator, stop
from flights.watching import Watcher
from tests.kit.documents import ROOT
from tests.kit.patience import HANG_S

PROGRAM = ROOT / "deploy/examples/worker.py"
ADDRESS, GROUP, TOPIC = "127.0.0.1:7400", "billing", "invoices"
PARTITIONS = 12
LOOK_S = 0.1
_BEGINS = re.compile(rf"{TOPIC}-(\d+) from \d+")


class _Process:
    """A process of the README's worker, and the notes that are taken of it."""

    def __init__(self, notes: Path, workers: dict[int, _Process]) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, PROGRAM], stdout=subprocess.PIPE, text=True, process_group=0
        )
        self.client_id = f"{socket.gethostname()}-{self.popen.pid}"
        self.notebook = Notebook(notes, self.client_id)
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


class _Run:
    """The steps of the run. `workers`: by partition, as they said."""

    def __init__(self, watcher: Watcher, notes: Path, stack: contextlib.ExitStack) -> None:
        self._watcher = watcher
        self._notes = notes
        self._stack = stack
        self._offsets: dict[int, int] = {}
        self.workers: dict[int, _Process] = {}
        self.processes: list[_Process] = []

    def start(self) -> _Process:
        process = _Process(self._notes, self.workers)
        self._stack.callback(stop, process.popen)
        self.processes.append(process)
        return process

    def kill(self, victim: _Process) -> None:
        self._look()
        self._watcher.note_kill(victim.client_id, self._watcher.now())
        for partition in self._of(victim):
            del self.workers[partition]  # Its last commit may be seen after its end.
        kill(victim.popen)

    def until_shared_by(self, *processes: _Process) -> None:
        share = PARTITIONS // len(processes)
        self._until(lambda: all(len(self._of(each)) == share for each in processes))

    def go_on(self, length_s: float) -> None:
        end_s = self._watcher.now() + length_s
        self._until(lambda: self._watcher.now() >= end_s)

    def _of(self, process: _Process) -> list[int]:
        return [number for number, worker in dict(self.workers).items() if worker is process]

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline_s = self._watcher.now() + HANG_S
        while not condition():
            assert self._watcher.now() < deadline_s, "the workers do not get on"
            self._look()
            time.sleep(LOOK_S)

    def _look(self) -> None:
        offsets = self._watcher.look().offsets
        for partition, worker in dict(self.workers).items():
            if offsets.get(partition, 0) > self._offsets.get(partition, 0):
                worker.notebook.note(WORKS, [partition])
        self._offsets = offsets


def record(pause_s: float) -> tuple[History, dict[str, str]]:
    """Play the run.

    Args:
        pause_s: time for which everybody works between two steps.
    Returns:
        The history, and names for its owners.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        start_coordinator(folder, stack, listen=ADDRESS)
        admin = stack.enter_context(GroupAdmin(ADDRESS))
        watcher = Watcher(admin, GROUP, TOPIC, folder / "coordinator.log")
        run = _Run(watcher, folder / "notes", stack)
        first = run.start()
        run.until_shared_by(first)  # A worker's number is its place in the order of beginnings.
        second = run.start()
        run.until_shared_by(first, second)
        run.go_on(pause_s)
        run.kill(second)
        run.until_shared_by(first)
        run.go_on(pause_s)
        watcher.note("a third worker is started")
        third = run.start()
        run.until_shared_by(first, third)
        run.go_on(pause_s)
        history = watcher.history(folder / "notes", watcher.now())
    return history, {each.client_id: f"worker {n}" for n, each in enumerate(run.processes, 1)}


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description="record a run of the README's worker")
    parser.add_argument("file", type=Path)
    parser.add_argument("--pause", type=float, default=12.0, metavar="SECONDS")
    options = parser.parse_args(argv)
    history, names = record(options.pause)
    history.save(options.file)
    text = options.file.read_text()
    for client_id, name in names.items():
        text = text.replace(f'"{client_id}"', f'"{name}"')
    options.file.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
