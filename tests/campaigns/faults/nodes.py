"""Coordinators of a deployment under faults, by number."""

from __future__ import annotations

import asyncio
import signal

from tests.kit.serving import Process


class Nodes:
    """Coordinators that run. Who has them starts them, in its own way."""

    def __init__(self) -> None:
        self.nodes: dict[int, Process] = {}
        self.variables: dict[str, str] = {}
        """Environment variables of nodes that are started from now on."""

    async def kill(self, number: int) -> None:
        await asyncio.to_thread(self.nodes.pop(number).kill)

    async def stop(self, number: int) -> None:
        """Stop a node, as an operator does."""
        process = self.nodes.pop(number)
        process.signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait)

    async def end(self) -> None:
        """End all that run, also those that stand still."""
        for process in self.nodes.values():
            process.signal(signal.SIGCONT)
            await asyncio.to_thread(process.kill)
