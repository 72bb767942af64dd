"""Real coordinators for tests: on this loop, or as a process of their own."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import random
import socket
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from coordinator.cli.kafka_listener import serve_kafka
from coordinator.security.loading import load
from coordinator.service.grpc.server import GrpcServer
from coordinator.settings import Settings
from coordinator.settings.sections import NODE_PORTS
from coordinator.testing.server import LoggedNode
from tests.kit.nodes import ObservedNode

FAST = {
    "listen": "127.0.0.1:0",
    "metrics_listen": "",
    "console_listen": "",
    "group_initial_rebalance_delay_ms": 50,
    "group_min_session_timeout_ms": 100,
}


class Running(ObservedNode):
    """A server on the test's own loop, with what it told those who watch."""

    def __init__(self, log=None, **settings) -> None:
        super().__init__(Settings.of(**{**FAST, **settings}), log=log)
        self.malformed: list = []
        self.refused: list = []
        self.deleted: list = []
        self.kafka: str | None = None
        self.full: list = []
        told = self.node.settings
        self.security = load(told.security, told.serving, told.kafka)
        if self.security.guard is not None:
            self.security.guard.on_refusal = self.refused.append
        self.server = GrpcServer(
            self.node,
            on_malformed=lambda *what: self.malformed.append(what),
            on_deleted=lambda *what: self.deleted.append(what),
            security=self.security,
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"


@contextlib.asynccontextmanager
async def running(**settings):
    """A server for the length of a test; it must not have failed in it.

    A test that makes it fail clears `failures`.
    """
    server = Running(**settings)
    await server.server.listen()
    server.kafka = await serve_kafka(
        server.server,
        server.security,
        failure=lambda what, error: server.failures.append((what, error)),
        full=lambda *notice: server.full.append(notice),
    )
    await server.server.load()
    watching = asyncio.create_task(server.security.watch(look_s=0.05))
    try:
        yield server
    finally:
        watching.cancel()
        await server.server.stop()
    assert server.failures == []


WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""The number of this process among those that run tests."""


NODES_APART = range(0, 2 * NODE_PORTS, NODE_PORTS)
"""Ports of the two nodes of a machine, counted from the port of the first."""


_GIVEN: deque[int] = deque(maxlen=300)
"""Ports that calls have returned or counted in, which may be opened only later."""


@functools.cache
def _ports() -> Iterator[int]:
    first, count = 20_000 + WORKER % 12 * 1_000, 1_000 - NODES_APART.stop
    return itertools.cycle(random.sample(range(first, first + count), count))


def free_port(needed: Sequence[int] = (0,)) -> int:
    """A port to come back to, which no other call has returned for a long while.

    It is none of those that the system gives to clients: a client that looks for a server which is
    not there could be connected to itself. Each process that runs tests has a thousand of its own.

    Args:
        needed: all ports that have to be free, counted from the one that is returned.
    """
    port = next(port for port in _ports() if all(_is_free(port + n) for n in needed))
    _GIVEN.extend(port + n for n in needed)
    return port


def _is_free(port: int) -> bool:
    if port in _GIVEN:
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
    return False


class Process(LoggedNode):
    """`coordinator serve` as a process, with pages of metrics, and in memory unless told otherwise.

    Args:
        wait: until it serves.
        variables: of its environment, besides those of this process.
    """

    def __init__(
        self, *flags: str, wait: bool = True, variables: Mapping[str, str] | None = None
    ) -> None:
        defaults = ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]
        defaults += ["--console-listen", ""]
        if "--data-dir" not in flags:
            defaults += ["--store", "memory"]
        # The commands, which tests run in this process, silence gRPC for themselves.
        environment = {k: v for k, v in os.environ.items() if k != "GRPC_VERBOSITY"}
        super().__init__([*defaults, *flags], {**environment, **(variables or {})}, wait=wait)

    def rss_mib(self) -> float:
        """Memory that the process has now; Linux only."""
        return rss_mib(self.pid)

    def descriptors(self) -> int:
        """Files and sockets that it has open; Linux only."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def rss_mib(pid: int) -> float:
    """Memory that a process has now; Linux only."""
    text = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in text.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024
