"""Signals reach all processes of a driver, whichever process group they are in."""

import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from flights.processes import kill, send, stop

PARENT = "setsid sh -c 'echo $$; exec sleep 600' & echo $$; wait"


@pytest.fixture
def parent():
    """A shell with a child in a session of its own, and the child's id."""
    with ExitStack() as stack:
        process = subprocess.Popen(
            ["sh", "-c", PARENT], stdout=subprocess.PIPE, text=True, process_group=0
        )
        stack.callback(stop, process)
        ids = {int(process.stdout.readline()) for _ in range(2)}
        (child,) = ids - {process.pid}
        yield process, child


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.integration  # It starts processes.
def test_a_signal_reaches_a_child_in_a_session_of_its_own(parent):
    process, child = parent
    send(process, signal.SIGSTOP)
    while {state(process.pid), state(child)} != {"T"}:
        pass
    kill(process)
    while Path(f"/proc/{child}").exists() and state(child) != "Z":
        pass
    assert process.returncode == -signal.SIGKILL
