"""A worker as a program, for `tests.bench.rolling`: it commits, and never looks at `revoking`.

    python -m tests.bench.rolling_worker {"address": …}

Its argument is a `Program` in JSON. It appends a line to a file after each commit, whether that was
accepted or not: its pid, the partition, the offset, when the work before began and how long it
took, and the time, all in seconds by a clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from dataclasses import dataclass
from functools import partial

from coordinator.client import BlockingPartition, Partition, Worker

TOPIC = "t"


@dataclass(frozen=True, slots=True)
class Program:
    """Settings of a worker. work_s: mean time from one commit of a partition to the next.

    lease_ms: of a group of sessions; None: the group is classic.
    """

    address: str
    group: str
    file: str
    partitions: int
    work_s: float
    has_threads: bool
    assignor: str
    heartbeat_interval_ms: int
    session_timeout_ms: int
    lease_ms: int | None = None

    def run(self) -> None:
        """Work until SIGTERM."""
        topics = {TOPIC: self.partitions}
        if self.lease_ms is None:
            worker = Worker(
                self.address,
                self.group,
                topics,
                assignors=self.assignor,
                heartbeat_interval_ms=self.heartbeat_interval_ms,
                session_timeout_ms=self.session_timeout_ms,
            )
        else:
            worker = Worker(
                self.address,
                self.group,
                topics,
                protocol="session",
                wishes={"lease_ms": self.lease_ms},
            )
        # Several threads and processes write there; a line is one call.
        file = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        worker.handler(
            partial(_work_in_thread, self.work_s, file)
            if self.has_threads
            else partial(_work, self.work_s, file)
        )
        worker.run()


async def _work(work_s: float, file: int, p: Partition) -> None:
    while True:
        began, offset = time.monotonic(), p.position + 1
        await asyncio.sleep(_piece(work_s))
        worked = time.monotonic()
        try:
            await p.commit(offset)
        finally:
            _note(file, p.number, offset, began, worked - began)


def _work_in_thread(work_s: float, file: int, p: BlockingPartition) -> None:
    while True:
        began, offset = time.monotonic(), p.position + 1
        time.sleep(_piece(work_s))
        worked = time.monotonic()
        try:
            p.commit(offset)
        finally:
            _note(file, p.number, offset, began, worked - began)


def _piece(work_s: float) -> float:
    return work_s * (0.5 + random.random())  # noqa: S311  # No secret.


def _note(file: int, number: int, offset: int, began_s: float, worked_s: float) -> None:
    line = f"{os.getpid()} {number} {offset} {began_s} {worked_s} {time.monotonic()}\n"
    os.write(file, line.encode())


if __name__ == "__main__":
    Program(**json.loads(sys.argv[1])).run()
