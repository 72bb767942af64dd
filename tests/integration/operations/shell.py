"""A shell that types the commands of a page, as its reader does."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.kit.documents import ROOT, Block, Command, blocks, commands, missing_lines
from tests.kit.patience import HANG_S

PORTS = (7400, 7401, 7402)
"""Ports that the pages name."""
LOOK_AGAIN_S = 0.3
DONE = "-- exit status: "
ASKING = re.compile(r"(?:\S*/)?coordinator (?:explain|groups|timeline|cluster describe)\b")
"""Commands that may be repeated until they print what the page does: readers wait too."""
SIGNAL = re.compile(r"kill\b")
"""Commands that print nothing themselves: what a page shows below one is printed by a program in
the background, when it comes to it."""
LOOPBACK_UP = """
import fcntl, os, socket, struct
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
    fcntl.ioctl(it, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
os.execvp("bash", ["bash"])
"""


@functools.cache
def own_network() -> tuple[str, ...]:
    """Command in front of `bash` that gives it a network of its own; empty if none can be made.

    There the ports that the pages name are free, whatever else runs on this machine.
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        return ()
    made = subprocess.run([unshare, "-rn", "true"], capture_output=True, check=False)
    return (unshare, "-rn", sys.executable, "-c", LOOPBACK_UP) if made.returncode == 0 else ()


def skip_if_ports_are_taken() -> None:
    for port in PORTS if not own_network() else ():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                pytest.skip(f"port {port}: {error}; and no network of its own could be made")


class Shell:
    """A bash that is told one command after the other. Use it as a context manager.

    Programs that are still running at the end are killed.

    Args:
        folder: where it begins.
        environment: added to that of the tests.
        has_jobs: a command in the background is a process group of its own, as in the shell of a
            reader, who may kill it by that.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        *,
        has_jobs: bool = False,
    ) -> None:
        skip_if_ports_are_taken()
        self._process = subprocess.Popen(
            own_network() or ["bash"],
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._statuses: list[int] = []
        self._has_ended = False
        self._grown = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if has_jobs:
            self.run("set -m")

    def play(self, block: Block) -> None:
        """Run the commands of a `console` block; each has to succeed and print what is below it."""
        for command in commands(block.text):
            self.check(command)

    def check(self, command: Command) -> str:
        """Run a command; it has to succeed and to print what the page does. Returns the output."""
        deadline = time.monotonic() + HANG_S
        while True:
            begin = len(self._lines)
            status = self.run(command.text)
            if command.is_background or (SIGNAL.match(command.text) and status == 0):
                self.wait_for(command.expected, begin)
                return self.output(begin)
            output = self.output(begin)
            missing = missing_lines(command.expected, output)
            if status == 0 and not missing:
                return output
            may_repeat = ASKING.match(command.text) and time.monotonic() < deadline
            assert may_repeat, f"$ {command.text}\n{output}\n-- status {status}, missing {missing}"
            time.sleep(LOOK_AGAIN_S)

    def run(self, text: str) -> int:
        """Run a command; returns its exit status, 0 for one in the background."""
        before = len(self._statuses)
        self._process.stdin.write(f'{text}\necho "{DONE}$?"\n')
        self._process.stdin.flush()
        self._wait(lambda: len(self._statuses) > before, text)
        return self._statuses[before]

    def wait_for(self, expected: Sequence[str], begin: int = 0) -> None:
        """Wait until these lines were printed, by any program and in any order."""
        self._wait(
            lambda: not missing_lines(expected, self.output(begin), in_order=False), str(expected)
        )

    def output(self, begin: int = 0) -> str:
        """Everything that was printed since line `begin`."""
        return "\n".join(self._lines[begin:])

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        with self._grown:
            self._grown.wait_for(lambda: condition() or self._has_ended, HANG_S)
            assert condition(), f"waited for {what}\n{self.output()}"

    def _read(self) -> None:
        for line in self._process.stdout:
            with self._grown:
                if line.startswith(DONE):
                    self._statuses.append(int(line.removeprefix(DONE)))
                else:
                    self._lines.append(line.rstrip("\n"))
                self._grown.notify_all()
        with self._grown:
            self._has_ended = True
            self._grown.notify_all()

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in _of_session(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()


def _of_session(session: int) -> list[int]:
    """Processes of a session, its leader among them."""
    found = [session]
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getsid(int(folder.name)) == session:
                found.append(int(folder.name))
    return found


def clone_this(home: Path) -> Path:
    """A fresh clone, with what has been changed here and not been committed."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    git = ["git", "-C", str(ROOT)]
    subprocess.run(["git", "clone", "-q", ROOT, home], check=True)
    changed = subprocess.run([*git, "diff", "HEAD", "--binary"], check=True, capture_output=True)
    if changed.stdout:
        subprocess.run(["git", "-C", home, "apply"], input=changed.stdout, check=True)
    return home


def play_page(page: Path, shell: Shell, folder: Path, *, run_snippets: bool = True) -> None:
    """Do what a page says: save the programs that name a file, run the others and the commands.

    Args:
        run_snippets: False if those that name no file are fragments that do not run alone.
    """
    for block in blocks(page):
        if block.name:
            (folder / block.name).write_text(block.text)
        elif block.language == "python" and run_snippets:
            (folder / "snippet.py").write_text(block.text)
            shell.check(Command("python snippet.py"))
        elif block.language == "console":
            shell.play(block)
