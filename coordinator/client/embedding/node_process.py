"""A node as a child process, `coordinator serve`; its addresses are read from its log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.spawn import get_executable
from pathlib import Path
from typing import Any, Final, Self

START_S: Final = 120.0
"""Seconds for a node to start, and to stop, before it is taken to hang."""
LINES_SHOWN: Final = 20
PROGRAM: Final = f"""import runpy, sys
sys.path.append({str(Path(__file__).parents[3])!r})
runpy.run_module('coordinator', run_name='__main__', alter_sys=True)"""
"""`python -m coordinator`, without the working directory: its files may be named as our modules."""


def command(*words: str) -> list[str]:
    """The command line of `coordinator` with these words."""
    # Not `sys.executable`: it may be a program that has Python inside.
    return [os.fsdecode(get_executable()), "-P", "-c", PROGRAM, *words]


def flags_of(settings: Mapping[str, Any]) -> list[str]:  # Any: the settings' own types.
    """Flags of `coordinator serve` for settings by name."""
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }
    return [f"--{name.replace('_', '-')}={text}" for name, text in texts.items()]


class CannotStart(RuntimeError):
    """The node has ended, or does not serve. The message has the end of its log."""


class NodeProcess:
    """`coordinator serve` as a process.

    Args:
        flags: of `coordinator serve`; its log has to be in JSON.
        environment: of the process.
        wait: until it serves.
        on_line: called with each line of its log, in a thread.
        on_end: called in that thread when the process has ended.
    Raises:
        CannotStart: it has ended instead.
    """

    def __init__(
        self,
        flags: Sequence[str],
        environment: Mapping[str, str],
        *,
        wait: bool = True,
        on_line: Callable[[dict[str, Any]], object] = lambda _: None,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # Our own program.
            command("serve", "--log-format", "json", *flags),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, "PYTHONUNBUFFERED": "1"},
        )
        self._on_line, self._on_end = on_line, on_end
        self.last_lines: deque[dict[str, Any]] = deque(maxlen=LINES_SHOWN)
        """The end of its log."""
        self.other = ""
        """The end of the rest of its standard error."""
        self.address = self.metrics = self.console = self.kafka = ""
        self._serving, self._ended = threading.Event(), threading.Event()
        # Somebody has to read: a node whose log nobody takes stands still.
        self._reader = threading.Thread(target=self._read, name="node-log", daemon=True)
        self._reader.start()
        if wait:
            self.wait_until_serving()

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def wait_until_serving(self) -> None:
        """Wait until it serves.

        Raises:
            CannotStart: it has ended, or does not serve after `START_S`.
        """
        if self._serving.wait(START_S) and self.address:
            return
        self._process.kill()
        status = self.wait()
        log = [json.dumps(line) for line in self.last_lines]
        raise CannotStart("\n".join([f"the node ended with {status}", *log, self.other]))

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._process.kill()
        self.wait()

    def end_input(self) -> None:
        """Close its standard input, at whose end a supervised node stops."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self, timeout_s: float = START_S) -> int:
        """The exit status; what was logged until then was passed on.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        status = self._process.wait(timeout_s)
        self._reader.join()
        self.end_input()
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def has_ended(self) -> bool:
        """True once the process has ended and its log was read."""
        return self._ended.is_set()

    @property
    def is_running(self) -> bool:
        """True until the process has ended."""
        return self._process.poll() is None

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as log:
            for text in log:
                if not text.startswith("{"):
                    self.other = (self.other + text)[-4_096:]  # Mostly gRPC's own.
                    continue
                line = json.loads(text)
                self.last_lines.append(line)
                if line["event"] == "serving":
                    self.address, self.metrics = line["address"], line["metrics"]
                    self.console, self.kafka = line["console"], line["kafka"]
                    self._serving.set()
                self._on_line(line)
        self._serving.set()
        self._ended.set()
        self._on_end()
