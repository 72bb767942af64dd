"""Signals to a node to stop, and the end of the process that has started it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass

LOOK_S = 0.25
"""Interval of looks whether the parent has ended."""


@dataclass(frozen=True, slots=True)
class Parent:
    """A process at whose end the node stops too, told by the end of standard input, a pipe from it.

    pid: of a worker that has embedded the node. Then no signal stops the node, since terminals and
    service managers send it to both, and the worker's last commits need the node; and the end of
    that process does, even if processes that it has forked hold the pipe open. 0: a supervisor.
    most_nodes: of a store that is shared; if there are as many, the worker's is not needed. None:
    of a supervisor.
    """

    pid: int = 0
    most_nodes: int | None = None


def stop_event(parent: Parent | None) -> asyncio.Event:
    """An event that is set by SIGTERM, SIGINT, or the end of the parent."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    if parent is not None:
        loop.add_reader(sys.stdin, stopping.set)  # Readable means EOF: nothing is ever written.
    if parent is None or not parent.pid:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        return stopping
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)

    def look() -> None:
        if os.getppid() != parent.pid:
            stopping.set()
        elif not stopping.is_set():
            loop.call_later(LOOK_S, look)

    look()
    return stopping
