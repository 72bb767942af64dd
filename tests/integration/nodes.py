"""Coordinators that share a store, as processes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Mapping

from tests.kit.serving import Process, free_port

SHARDS = 8


class Nodes:
    """Coordinators by number, each at an address of its own."""

    def __init__(self, store: str, variables: Mapping[str, str] | None = None) -> None:
        self._store = store
        self._variables = variables
        self._ports: dict[int, int] = {}
        self.running: dict[int, Process] = {}

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self._ports.values()]

    async def start(self, number: int) -> None:
        port = self._ports.setdefault(number, free_port())
        flags = (
            "--store", self._store, "--node-id", str(number), "--shards", str(SHARDS),
            "--listen", f"127.0.0.1:{port}", "--metrics-listen", "", "--console-listen", "",
            "--group-initial-rebalance-delay-ms", "300", "--store-session-timeout-ms", "5000",
        )  # fmt: skip
        self.running[number] = await asyncio.to_thread(Process, *flags, variables=self._variables)

    async def stop(self, number: int) -> None:
        process = self.running.pop(number)
        known = len(process.lines)
        process.signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait) == 0
        assert [line for line in process.lines[known:] if line["level"] != "info"] == []

    async def kill(self, number: int) -> None:
        await asyncio.to_thread(self.running.pop(number).kill)

    def kill_all(self) -> None:
        for process in self.running.values():
            process.kill()


@contextlib.asynccontextmanager
async def three_nodes(store: str, variables: Mapping[str, str] | None = None):
    nodes = Nodes(store, variables)
    try:
        for number in (1, 2, 3):
            await nodes.start(number)
        yield nodes
    finally:
        nodes.kill_all()
