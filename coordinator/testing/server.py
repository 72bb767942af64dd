"""A real node for tests, in a process of its own on a free port of loopback.

A process, not a thread of the test's: it can be killed as a real one is, and nothing that the test
does holds up its loop. It ends with the test's process, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from coordinator.settings import Settings
from coordinator.settings.sources import ENVIRONMENT_PREFIX

START_S: Final = 120.0
"""Seconds for a node to start, and to stop, before it is taken to hang."""
LINES_SHOWN: Final = 20
DEFAULTS: Final[Mapping[str, Any]] = {  # Any: the settings' own types.
    "listen": "127.0.0.1:0",
    "metrics_listen": "",
    "console_listen": "",
    # Tests have no time to wait for members that come later.
    "group_initial_rebalance_delay_ms": 0,
}


class CannotStart(RuntimeError):
    """The node has ended, or does not serve. The message has the end of its log."""


class NodeProcess:
    """`coordinator serve` as a process; its addresses are read from its log.

    Args:
        flags: of `coordinator serve`; its log has to be in JSON.
        environment: of the process.
        wait: until it serves.
    Raises:
        CannotStart: it has ended instead.
    """

    def __init__(
        self, flags: Sequence[str], environment: Mapping[str, str], *, wait: bool = True
    ) -> None:
        command = [sys.executable, "-m", "coordinator", "serve", "--log-format", "json", *flags]
        self._process = subprocess.Popen(  # noqa: S603  # Our own program.
            command,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, "PYTHONUNBUFFERED": "1"},
        )
        self.lines: list[dict[str, Any]] = []
        """Its log."""
        self.other = ""
        """The rest of its standard error."""
        self.address = self.metrics = self.console = self.kafka = ""
        self._serving = threading.Event()
        # Somebody has to read: a node whose log nobody takes stands still.
        self._reader = threading.Thread(target=self._read, daemon=True)
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
        log = [json.dumps(line) for line in self.lines[-LINES_SHOWN:]]
        raise CannotStart("\n".join([f"the node ended with {status}", *log, self.other]))

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._process.kill()
        self.wait()

    def wait(self) -> int:
        """The exit status; what was logged until then is in `lines`."""
        status = self._process.wait(timeout=START_S)
        self._reader.join()
        if self._process.stdin is not None:
            self._process.stdin.close()
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def is_running(self) -> bool:
        """True until the process has ended."""
        return self._process.poll() is None

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as log:
            for text in log:
                if not text.startswith("{"):
                    self.other += text  # Mostly gRPC's own.
                else:
                    line = json.loads(text)
                    self.lines.append(line)
                    if line["event"] == "serving":
                        self.address, self.metrics = line["address"], line["metrics"]
                        self.console, self.kafka = line["console"], line["kafka"]
                        self._serving.set()
        self._serving.set()


class CoordinatorServer:
    """A node that runs until `stop`, `kill` or the end of the test.

    Args:
        settings: by name, as those of `coordinator serve`; by default the log is in memory, and
            the first rebalance of a group is not delayed. With `data_dir`, offsets outlive the
            process.
    Raises:
        InvalidSetting: there is no such setting, or a value is not allowed.
        CannotStart: the node has ended instead of serving.
    """

    def __init__(self, **settings: Any) -> None:  # Any: the settings' own types.
        given = {**DEFAULTS, **settings}
        given.setdefault("store", "sqlite" if "data_dir" in given else "memory")
        for name, value in given.items():
            if isinstance(value, os.PathLike):
                given[name] = os.fspath(value)
        Settings.of(**given)  # Refuses what the process would refuse, here and in one sentence.
        self._settings = given
        self._node = self._start()
        # The port is kept, so that clients find a node that was started again.
        self._settings["listen"] = self._node.address
        if self._node.kafka:
            self._settings["kafka_listen"] = self._node.kafka

    @property
    def address(self) -> str:
        """HOST:PORT, the same after `start`."""
        return self._node.address

    @property
    def kafka(self) -> str:
        """HOST:PORT for Kafka's own clients, the same after `start`; they are served if the setting
        `kafka_listen` is given, as "127.0.0.1:0"."""
        return self._node.kafka

    @property
    def log(self) -> list[dict[str, Any]]:
        """The lines of the log of its last start."""
        return self._node.lines

    def start(self) -> None:
        """Start it again at the same address, after `kill` or `stop`."""
        if not self._node.is_running:
            self._node = self._start()

    def kill(self) -> None:
        """Kill it, as SIGKILL does."""
        if self._node.is_running:
            self._node.kill()

    def stop(self) -> None:
        """Stop it, as SIGTERM does."""
        if self._node.is_running:
            self._node.signal(signal.SIGTERM)
            self._node.wait()

    def __enter__(self) -> CoordinatorServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> NodeProcess:
        flags = []
        for name, value in self._settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            flags.append(f"--{name.replace('_', '-')}={text}")
        # Settings of whoever runs the tests are none of the node's.
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(ENVIRONMENT_PREFIX)
        }
        return NodeProcess([*flags, "--supervised"], environment)


class CoordinatorServers:
    """Makes servers for one test, and stops them: call it to start one."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def __call__(self, **settings: Any) -> CoordinatorServer:  # Any: the settings' own types.
        """Start a node; see `CoordinatorServer`."""
        return self._stack.enter_context(CoordinatorServer(**settings))

    def __getattr__(self, name: str) -> Any:  # Any: it always raises.
        raise AttributeError(
            f"`coordinator_server` starts a node: write server = coordinator_server(), then "
            f"server.{name}"
        )

    def __enter__(self) -> CoordinatorServers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
