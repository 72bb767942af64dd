"""`coordinator serve`: one node, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from coordinator.console.server import ConsoleServer
from coordinator.core.events import Event
from coordinator.observe.logs import EventLog, configure
from coordinator.observe.metrics import Metrics
from coordinator.runtime.garbage import ShortPauses
from coordinator.runtime.node import Node
from coordinator.runtime.stores import open_stores
from coordinator.runtime.watchers import Watchers
from coordinator.service.replica_service import Peers
from coordinator.service.server import CoordinatorServer
from coordinator.settings import Settings
from coordinator.storage.log import CannotOpen, Damaged, LogError

CANNOT_START = 1


def serve(settings: Settings, *, supervised: bool = False) -> int:
    """Run a node; SIGTERM and SIGINT end it gracefully.

    Args:
        supervised: so does the end of standard input, whose other end the supervisor holds.
    Returns:
        The exit status: 0 after a graceful stop, 1 if it could not start.
    """
    with ShortPauses() as pauses:
        return event_loop()(_serve(settings, supervised, pauses))


def event_loop() -> Callable[[Coroutine[Any, Any, int]], int]:
    """What runs a coroutine to its end: uvloop where it is installed, else asyncio."""
    if sys.platform != "win32":
        with contextlib.suppress(ImportError):
            import uvloop

            run: Callable[[Coroutine[Any, Any, int]], int] = uvloop.run
            return run
    return asyncio.run


async def _serve(settings: Settings, supervised: bool, pauses: ShortPauses) -> int:
    logger = configure(settings.log_format, settings.log_level)
    event_log = EventLog(logger)

    def on_events(events: Sequence[Event], now_ms: int) -> None:
        event_log(events, now_ms)
        metrics(events, now_ms)

    def on_append(seconds: float, records: int) -> None:
        metrics.log.appended(seconds, records)

    def on_malformed(method: str, peer: str, what: str) -> None:
        logger.warning("request_refused", method=method, peer=peer, what=what)

    def on_commit(appends: int, seconds: float) -> None:
        metrics.log.flushed(seconds, appends)

    def on_heartbeat(seconds: float) -> None:
        metrics.heartbeat(seconds)

    watchers = Watchers(
        events=on_events,
        failure=lambda what, error: logger.error("trouble", what=what, exc_info=error),
        recovery=lambda what: logger.info("recovered", what=what),
        append=on_append,
    )
    if settings.shared_store is not None and settings.node_id == 0:
        settings = replace(settings, node_id=1 + secrets.randbelow(2**31 - 1))
    try:
        stores = await open_stores(settings, on_commit)
    except CannotOpen as error:
        logger.error("cannot_start", what=str(error))
        return CANNOT_START
    peers = Peers(settings.node_id)
    node = Node(
        settings,
        watchers=watchers,
        log=stores.log,
        coordination=stores.coordination,
        fetch=peers.fetch,
    )
    server = CoordinatorServer(node, on_malformed=on_malformed, on_heartbeat=on_heartbeat)
    metrics = _metrics_of(server, pauses)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if supervised:
        loop.add_reader(sys.stdin, stopping.set)  # Nothing is ever written: it has ended.
    try:
        port = await server.listen()
        host, _ = settings.listen_address
        logger.info("loading", address=f"{host}:{port}", store=settings.store)
        if not await _load(server, stopping):
            await server.stop()
            return 0
        pages = _Pages(settings, metrics, f"{host}:{port}")
    except (OSError, Damaged, LogError) as error:
        logger.error("cannot_start", what=str(error))
        await server.stop()
        return CANNOT_START
    logger.info(
        "serving",
        address=f"{host}:{port}",
        metrics=pages.metrics_url,
        console=pages.console_url,
        shards=settings.shards,
    )
    await stopping.wait()
    if supervised:
        loop.remove_reader(sys.stdin)
    logger.info("stopping")
    await server.stop()
    await peers.close()
    pages.close()
    logger.info("stopped")
    return 0


def _metrics_of(server: CoordinatorServer, pauses: ShortPauses) -> Metrics:
    node = server.node
    patterns = node.settings.metrics_groups.split(",")
    return Metrics(
        stats=node.stats,
        loop_lag_s=lambda: node.loop_lag_s,
        calls=server.rpc.answered_calls,
        heartbeats=lambda: server.rpc.heartbeats,
        cluster=node.cluster_stats,
        pauses=pauses,
        groups=[pattern.strip() for pattern in patterns if pattern],
        group_stats=node.group_stats,
    )


class _Pages:
    """What is served over HTTP: metrics, and the console.

    Raises:
        OSError: an address cannot be bound.
    """

    def __init__(self, settings: Settings, metrics: Metrics, address: str) -> None:
        self.metrics_url: str | None = None
        self.console_url: str | None = None
        with contextlib.ExitStack() as opened:
            if settings.metrics_address is not None:
                host, _ = settings.metrics_address
                port, stop = metrics.serve(*settings.metrics_address)
                opened.callback(stop)
                self.metrics_url = f"http://{host}:{port}/metrics"
            if settings.console_address is not None:
                console = ConsoleServer(*settings.console_address, address)
                opened.callback(console.close)
                self.console_url = console.url
            self._closing = opened.pop_all()

    def close(self) -> None:
        """Serve no more."""
        self._closing.close()


async def _load(server: CoordinatorServer, stopping: asyncio.Event) -> bool:
    """False if the node was told to stop before everything was loaded."""
    loading = asyncio.create_task(server.load())
    told = asyncio.create_task(stopping.wait())
    await asyncio.wait((loading, told), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not loading.done():
        loading.cancel()
        return False
    await loading
    return True
