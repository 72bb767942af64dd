"""A real node for tests, in a process of its own on a free port of loopback.

A process, not a thread of the test's: it can be killed as a real one is, and nothing that the test
does holds up its loop. It ends with the test's process, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any, Final

from coordinator.client.embedding.node_process import CannotStart, NodeProcess, flags_of
from coordinator.settings import Settings
from coordinator.settings.sources import ENVIRONMENT_PREFIX

__all__ = ["CannotStart", "CoordinatorServer", "CoordinatorServers", "LoggedNode"]

DEFAULTS: Final[Mapping[str, Any]] = {  # Any: the settings' own types.
    "listen": "127.0.0.1:0",
    "metrics_listen": "",
    "console_listen": "",
    # Tests have no time to wait for members that come later.
    "group_initial_rebalance_delay_ms": 0,
}


class LoggedNode(NodeProcess):
    """A node that keeps its log.

    Args:
        flags, environment, wait: as those of `NodeProcess`.
    Raises:
        CannotStart: it has ended instead of serving.
    """

    def __init__(
        self, flags: Sequence[str], environment: Mapping[str, str], *, wait: bool = True
    ) -> None:
        self.lines: list[dict[str, Any]] = []
        """Its log."""
        super().__init__(flags, environment, wait=wait, on_line=self.lines.append)


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
        chosen = {**DEFAULTS, **settings}
        chosen.setdefault("store", "sqlite" if "data_dir" in chosen else "memory")
        for name, value in chosen.items():
            if isinstance(value, os.PathLike):
                chosen[name] = os.fspath(value)
        Settings.of(**chosen)  # Refuses what the process would refuse, here and in one sentence.
        self._settings = chosen
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

    def _start(self) -> LoggedNode:
        # Settings of whoever runs the tests are none of the node's.
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(ENVIRONMENT_PREFIX)
        }
        return LoggedNode([*flags_of(self._settings), "--supervised"], environment)


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
