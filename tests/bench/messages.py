"""Benchmark of large messages: the longest turn of the event loop, for each RPC.

The server is in this process, on a loop in a thread of its own, whose every turn is measured in CPU
time of that thread; gRPC's own work in other threads is not in it. Messages are as large as their
limits allow, or 2 MiB of the smallest items there are, which are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

import grpc

from coordinator.runtime.garbage import ShortPauses
from coordinator.runtime.node import Node
from coordinator.runtime.stores import open_stores
from coordinator.runtime.watchers import Watchers
from coordinator.service.grpc.server import GrpcServer
from coordinator.settings import Settings
from tests.bench.figures import Figures, Goal
from tests.bench.large_messages import LargeMessage, large_messages
from tests.bench.servers import scratch

GOAL_MS = 100.0


def bench_messages(*, quick: bool = False) -> Figures:
    """The longest turn of the loop, in ms, for each message; the goal is that others wait no more.

    Args:
        quick: limits and state are a hundredth.
    """
    scale = 100 if quick else 1
    figures: Figures = {}
    settings = Settings.of(listen="127.0.0.1:0", metrics_listen="", console_listen="")
    with (
        scratch() as folder,
        ShortPauses(),
        _Measured(settings.changed(data_dir=str(folder))) as server,
    ):
        for message in large_messages(scale):
            server.clear()
            for data in message.sent:
                server.send(message, data)
            server.settle()
            figures[f"{message.what}: longest turn, ms"] = Goal(server.longest_ms, at_most=GOAL_MS)
            figures[f"{message.what}: CPU in all, ms"] = round(server.total_ms, 1)
    return figures


class _MeasuredLoop(asyncio.SelectorEventLoop):
    """A loop that knows what each of its turns took: all that was ready at once."""

    longest_s = total_s = 0.0

    def _run_once(self) -> None:
        began = time.thread_time()
        super()._run_once()  # type: ignore[misc]  # asyncio's own, which waits there too: no CPU.
        took = time.thread_time() - began
        self.longest_s = max(self.longest_s, took)
        self.total_s += took


class _Measured:
    """A server in this process. Use it as a context manager."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = _MeasuredLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> _Measured:
        self._thread.start()
        self._server, port = self._do(self._start())
        options = [("grpc.max_receive_message_length", -1)]
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=options)
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        self._do(self._server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def longest_ms(self) -> float:
        """The longest turn since `clear`."""
        return 1_000 * self._loop.longest_s

    @property
    def total_ms(self) -> float:
        """All turns since `clear`."""
        return 1_000 * self._loop.total_s

    def clear(self) -> None:
        """Forget what was measured."""
        self._loop.longest_s = self._loop.total_s = 0.0

    def settle(self) -> None:
        """Wait for the end of the turn in which the last answer left."""
        self._do(asyncio.sleep(0))
        self._do(asyncio.sleep(0))

    def send(self, message: LargeMessage, data: bytes) -> None:
        """Call with raw bytes; a refusal is an answer like any other."""
        with contextlib.suppress(grpc.RpcError):
            # Any: bytes go out and come back as they are.
            call: Any = self._channel.unary_unary(message.method)
            call(data, timeout=600)

    async def _start(self) -> tuple[GrpcServer, int]:
        def ignore(*_: object) -> None:
            """Callback that does nothing."""

        watchers = Watchers(events=ignore, failure=ignore, recovery=ignore)
        stores = await open_stores(self._settings.storage, lambda *_: None)
        node = Node(self._settings, watchers=watchers, log=stores.log)
        server = GrpcServer(node, on_malformed=ignore)
        port = await server.listen()
        await server.load()
        return server, port

    def _do(self, work: Any) -> Any:  # Any: a coroutine and its result.
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(600)
