"""`coordinator serve`: one node, until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence

from coordinator.core.events import Event
from coordinator.observe.logs import EventLog, configure
from coordinator.observe.metrics import Metrics
from coordinator.runtime.node import Node
from coordinator.service.server import CoordinatorServer
from coordinator.settings import Settings

CANNOT_START = 1


def serve(settings: Settings) -> int:
    """Run a node; SIGTERM and SIGINT end it gracefully.

    Returns:
        The exit status: 0 after a graceful stop, 1 if it could not start.
    """
    if sys.platform == "win32":
        return asyncio.run(_serve(settings))
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_serve(settings))
    return int(uvloop.run(_serve(settings)))


async def _serve(settings: Settings) -> int:
    logger = configure(settings.log_format, settings.log_level)
    event_log = EventLog(logger)

    def on_events(events: Sequence[Event], now_ms: int) -> None:
        event_log(events, now_ms)
        metrics(events, now_ms)

    def on_failure(what: str, error: BaseException | None) -> None:
        logger.error("shard_stopped", what=what, exc_info=error)

    def on_malformed(method: str, peer: str, what: str) -> None:
        logger.warning("request_refused", method=method, peer=peer, what=what)

    node = Node(settings, on_events=on_events, on_failure=on_failure)
    server = CoordinatorServer(node, on_malformed=on_malformed)
    metrics = Metrics(
        stats=node.stats, loop_lag_s=lambda: node.loop_lag_s, calls=lambda: server.rpc.calls
    )
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    stop_metrics = None
    try:
        port = await server.start()
        metrics_url = None
        if settings.metrics_address is not None:
            host, _ = settings.metrics_address
            metrics_port, stop_metrics = metrics.serve(*settings.metrics_address)
            metrics_url = f"http://{host}:{metrics_port}/metrics"
    except OSError as error:
        logger.error("cannot_start", what=str(error))
        await server.stop()
        return CANNOT_START
    host, _ = settings.listen_address
    logger.info("serving", address=f"{host}:{port}", metrics=metrics_url, shards=settings.shards)
    await stopping.wait()
    logger.info("stopping")
    await server.stop()
    if stop_metrics is not None:
        stop_metrics()
    logger.info("stopped")
    return 0
