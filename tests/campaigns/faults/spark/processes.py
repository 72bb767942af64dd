"""Processes of a Spark driver, found in /proc, as no interface lists them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessInfo:
    pid: int
    parent: int
    command: str


def processes() -> dict[int, ProcessInfo]:
    """All that run now, by pid."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                status = (folder / "stat").read_text().rpartition(")")[2].split()
                if status[0] == "Z":
                    continue
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(folder.name)] = ProcessInfo(int(folder.name), int(status[1]), command)
    return found


def below(pid: int) -> list[ProcessInfo]:
    """The process and all its descendants."""
    everything = processes()
    family = [pid]
    for candidate in family:
        family += [p.pid for p in everything.values() if p.parent == candidate]
    return [everything[member] for member in family if member in everything]


def source_processes(driver_pid: int) -> list[int]:
    """Ids of the processes that hold the members of a driver's streaming queries."""
    return [p.pid for p in below(driver_pid) if "python_streaming_source_runner" in p.command]


def executors(app: str) -> list[int]:
    """The executors' JVMs of an application."""
    return [
        p.pid
        for p in processes().values()
        if "CoarseGrainedExecutorBackend" in p.command and f"--app-id {app}" in p.command
    ]


def python_workers(app: str) -> list[int]:
    """The executors' Python workers: forked by the daemon that each executor starts."""
    daemons = [
        p for jvm in executors(app) for p in below(jvm) if "pyspark" in p.command and p.pid != jvm
    ]
    pids = {p.pid for p in daemons}
    return [p.pid for p in daemons if p.parent in pids]


def send(pids: Iterable[int], number: signal.Signals) -> int:
    """Send a signal; return the number of processes that it reached."""
    heard = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            heard += 1
    return heard
