"""Programs that embed their node, as processes: what each prints is one JSON document a line."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from typing import Any

from tests.kit.patience import HANG_S

HEAD = """
import json, logging, os, signal, sys, threading, time
from coordinator.client import Worker, embedded

signal.signal(signal.SIGINT, signal.default_int_handler)  # These tests may run with it ignored.

def tell(*words):
    os.write(1, (json.dumps(words) + "\\n").encode())

class Told(logging.Handler):
    def emit(self, record):
        tell("log", record.name, record.getMessage())

logging.basicConfig(level=logging.INFO, handlers=[Told()])
logging.getLogger("coordinator.node").setLevel(logging.DEBUG)
url = sys.argv[1]
"""
WORKER = """
worker = Worker(url, "thumbnails", topics={"images": 4})

@worker.handler
def make(p):
    tell("took", p.key.partition, p.position)
    try:
        while True:
            time.sleep(0.02)
            p.commit(p.position + 1)
    finally:
        tell("gave", p.key.partition, p.position)

worker.run()
tell("ended")
"""

STAND = """
with embedded(url) as nodes:
    tell("found", *nodes.find_node(0))
    threading.Event().wait()
"""
PARTITIONS = set(range(4))
"""Those of the worker."""


class Program:
    """A running program; `heard` has everything that it printed so far."""

    def __init__(self, url: str, text: str = WORKER, *, session: bool = False) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", HEAD + text, url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=session,
        )
        self.heard: list[list[Any]] = []
        self.errors = ""
        self._lines: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        self._readers = [
            threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def until(self, *words: object) -> list[Any]:
        """The next line that begins with these words."""
        while True:
            line = self._lines.get(timeout=HANG_S)
            assert line is not None, f"it has ended without {words}: {self.heard} {self.errors}"
            if line[: len(words)] == list(words):
                return line

    def until_logged(self, text: str) -> str:
        """The next line of its log that has a text."""
        while text not in (found := self.until("log")[2]):
            pass
        return found

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Its exit status, once it has ended and everything was heard."""
        status = self._process.wait(HANG_S)
        for reader in self._readers:
            reader.join(HANG_S)
        return status

    def logged(self, text: str) -> list[str]:
        return [line[2] for line in self.heard if line[0] == "log" and text in line[2]]

    def _read(self) -> None:
        for text in self._process.stdout:
            line = json.loads(text)
            self.heard.append(line)
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        self.errors = self._process.stderr.read()


@contextlib.contextmanager
def program(url: str, text: str = WORKER, *, session: bool = False):
    process = Program(url, text, session=session)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            if session:
                os.killpg(process.pid, signal.SIGKILL)
        process._process.kill()
        process._process.wait()


def takes(program, wanted: set[int]) -> dict[int, int]:
    """Where it begins, by partition, once it has taken those."""
    found: dict[int, int] = {}
    while not wanted <= found.keys():
        _, partition, position = program.until("took")
        found[partition] = position
    return found
