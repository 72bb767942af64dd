"""`coordinator serve`: one node, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace

from coordinator.cli.notify import notify
from coordinator.console.server import ConsoleServer
from coordinator.core.events import Event
from coordinator.observe.logs import EventLog, configure
from coordinator.observe.metrics import Metrics
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
    if sys.platform == "win32":
        return asyncio.run(_serve(settings, supervised))
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_serve(settings, supervised))
    return int(uvloop.run(_serve(settings, supervised)))


async def _serve(settings: Settings, supervised: bool) -> int:
    logger = configure(settings.log_format, settings.log_level)
    event_log = EventLog(logger)

    def on_events(events: Sequence[Event], now_ms: int) -> None:
        event_log(events, now_ms)
        metrics(events, now_ms)

    def on_append(seconds: float, records: int) -> None:
        metrics.appended(seconds, records)

    def on_malformed(method: str, peer: str, what: str) -> None:
        logger.warning("request_refused", method=method, peer=peer, what=what)

    watchers = Watchers(
        events=on_events,
        failure=lambda what, error: logger.error("trouble", what=what, exc_info=error),
        recovery=lambda what: logger.info("recovered", what=what),
        append=on_append,
    )
    if settings.shared_store is not None and settings.node_id == 0:
        settings = replace(settings, node_id=1 + secrets.randbelow(2**31 - 1))
    try:
        stores = await open_stores(settings)
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
    server = CoordinatorServer(node, on_malformed=on_malformed)
    metrics = Metrics(
        stats=node.stats,
        loop_lag_s=lambda: node.loop_lag_s,
        calls=lambda: server.rpc.calls,
        cluster=node.cluster_stats,
        groups=[pattern.strip() for pattern in settings.metrics_groups.split(",") if pattern],
        group_stats=node.group_stats,
    )
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
    notify("READY=1", f"STATUS=serving on {host}:{port}")
    await stopping.wait()
    if supervised:
        loop.remove_reader(sys.stdin)
    logger.info("stopping")
    notify("STOPPING=1", "STATUS=draining")
    await server.stop()
    await peers.close()
    pages.close()
    logger.info("stopped")
    return 0


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
