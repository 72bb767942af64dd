"""Processes of the demo: start, check, stop and kill a coordinator and our own programs."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

STOP_PATIENCE_S = 15


def start_coordinator(folder: Path, stack: contextlib.ExitStack, **more: object) -> tuple[str, str]:
    """Start a coordinator on SQLite in `folder`; returns the addresses of service and metrics.

    Args:
        more: settings, by name.
    """
    log = folder / "coordinator.log"
    settings = {
        "log-format": "json",
        "listen": "127.0.0.1:0",
        "metrics-listen": "127.0.0.1:0",
        "console-listen": "127.0.0.1:0",
        "group-min-session-timeout-ms": 1000,
        "data-dir": folder / "data",
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    process = start_program("coordinator", ["serve"], settings, log, stack)
    while process.poll() is None:
        for line in log.read_text().splitlines(keepends=True):
            if line.endswith("\n") and (entry := json.loads(line))["event"] == "serving":
                return entry["address"], entry["metrics"]
        time.sleep(0.05)
    raise SystemExit(f"the coordinator did not start: see {log}")


def start_program(
    module: str,
    arguments: list[str],
    settings: Mapping[str, object],
    log: Path,
    stack: contextlib.ExitStack,
) -> subprocess.Popen[bytes]:
    """Start a Python module as a process, which is stopped when `stack` is closed.

    Args:
        settings: flags and their values. log: file that its output is appended to.
    """
    flags = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
    with log.open("a") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, *flags],
            stdout=output,
            stderr=output,
            # Its own process group, so that it can be killed with its children.
            process_group=0,
        )
    stack.callback(stop, process)
    return process


def check(process: subprocess.Popen[bytes], log: Path) -> None:
    """Raise SystemExit if the process has failed; being killed or terminated is no failure."""
    if (process.poll() or 0) > 0:
        raise SystemExit(f"a process has failed with {process.returncode}: see {log}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process; kill it if it does not end in time."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_PATIENCE_S)
    except subprocess.TimeoutExpired:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all below it by SIGKILL, so that none of them cleans up."""
    send(process, signal.SIGKILL)
    process.wait()


def send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a process and all below it: Spark's are not of one process group."""
    first = psutil.Process(process.pid)
    for each in [first, *first.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.send_signal(number)
