"""The process that makes plans of large session groups (`planner_process.py` starts it).

It reads a `PlanInput` at a time from standard input and writes the `Plan`, or the words of the
error, to standard output, each as a pickle behind its length. It ends when its input does, so that
it never outlives the node, however that ends.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
from typing import BinaryIO

from coordinator.core.sessions.plan.allocator import plan
from coordinator.core.values.plans import Plan, PlanInput

LENGTH = struct.Struct("!Q")
"""Precedes each pickle."""
NICENESS = 5
"""Heartbeats are more urgent than plans, where both share a core."""


def packed(value: PlanInput | Plan | str) -> bytes:
    """A value with its length in front."""
    body = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


def answer(state: PlanInput) -> Plan | str:
    """The plan, or why there is none."""
    try:
        return plan(state)
    except Exception as error:  # noqa: BLE001  # A bug of the planner is told, and the next plan made.
        return f"{type(error).__name__}: {error}"


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer until the source ends."""
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        (size,) = LENGTH.unpack(head)
        sink.write(packed(answer(pickle.loads(source.read(size)))))  # noqa: S301  # Our parent's.
        sink.flush()


def main() -> None:
    """Serve the parent process."""
    os.nice(NICENESS)
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
