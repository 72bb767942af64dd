"""One coordinator on SQLite, for faults that do not need others beside it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from tests.campaigns.faults.nodes import Nodes
from tests.kit.serving import Process, free_port

NUMBER = 1


class SingleNode(Nodes):
    """The same face as `Deployment`, for one node: use it as an async context manager."""

    numbers = (NUMBER,)
    fail_over_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(prefix="single-"))
        self.addresses = [f"127.0.0.1:{free_port()}"]

    async def __aenter__(self) -> SingleNode:
        await self.start(NUMBER)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()
        shutil.rmtree(self._folder)

    async def start(self, number: int) -> None:
        """Start the coordinator on the data that it has, and wait until it serves."""
        flags = (
            "--data-dir", str(self._folder), "--listen", self.addresses[0],
            "--metrics-listen", "", "--drain-timeout-ms", "3000",
        )  # fmt: skip
        self.nodes[number] = await asyncio.to_thread(Process, *flags, variables=self.variables)
