"""`coordinator serve`: run one node until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from coordinator.cli.event_sinks import EventSinks
from coordinator.cli.kafka_listener import CannotServeKafka, serve_kafka
from coordinator.cli.notify import notify
from coordinator.cli.pages import Pages
from coordinator.cli.ports import addresses, problems
from coordinator.cli.security_log import log_security
from coordinator.cli.stopping import Parent, stop_event
from coordinator.observe.kafka_metrics import KafkaStats
from coordinator.observe.logs import configure
from coordinator.observe.metrics import Metrics
from coordinator.observe.native_stderr import NativeStderr
from coordinator.runtime.garbage import ShortPauses
from coordinator.runtime.node import Node
from coordinator.runtime.planner_process import PlannerProcess
from coordinator.runtime.stores import Stores, open_stores
from coordinator.security.loading import Security
from coordinator.security.tokens import new_token
from coordinator.service.grpc.replica_service import Peers
from coordinator.service.grpc.server import GrpcServer
from coordinator.service.otel import CannotTrace, open_tracer
from coordinator.service.tracing import NO_TRACES, Tracer
from coordinator.settings import Settings
from coordinator.settings.sections import ObserveConfig
from coordinator.storage.coordination import NodeIdTaken
from coordinator.storage.log import CannotOpen, Damaged, LogError

CANNOT_START = CANNOT_GO_ON = 1
CANNOT_STOP = 3
HAND_OVER_S = 5.0
"""Time beyond `drain_timeout_ms` to hand shards over and write the last records."""


def serve(settings: Settings, security: Security, parent: Parent | None = None) -> int:
    """Run a node; SIGTERM and SIGINT end it gracefully.

    Args:
        security: loaded from the same settings.
        parent: None: it stops by signals alone.
    Returns:
        The exit status: 0 after a graceful stop, 1 if the node could not start or has found its
        node id taken by another process. If stopping takes too long, the process exits with 3.
    """
    with NativeStderr() as native, ShortPauses() as pauses:
        logger = configure(settings.observe.log_format, settings.observe.log_level)
        native.log_to(lambda level, event, values: logger.log(level, event, **values))
        return run(_serve(settings, security, parent, pauses, logger))


async def _serve(
    settings: Settings, security: Security, parent: Parent | None, pauses: ShortPauses, logger: Any
) -> int:
    pauses.attach()
    log_security(security, settings, logger)
    if taken := problems(addresses(settings)):
        for reason in taken:
            logger.error("cannot_start", what=reason)
        return CANNOT_START
    sinks = EventSinks(logger)
    if settings.storage.shared_store is not None and settings.cluster.node_id == 0:
        settings = settings.changed(node_id=1 + secrets.randbelow(2**31 - 1))
    try:
        tracer, end_traces = _tracer(settings.observe, settings.serving.listen)
        stores = await open_stores(settings.storage, sinks.flushed, sinks.store_failure)
        token = await _reserve(stores, settings, security, parent)
        if token is None:
            logger.info("enough_nodes")
            await stores.log.close()
            return 0
    except (CannotOpen, CannotTrace, Damaged, LogError) as error:
        logger.error("cannot_start", what=str(error))
        return CANNOT_START
    peers = Peers(settings.cluster.node_id, replace(security.credentials(), token=token))
    planner = PlannerProcess()
    stopping, id_taken = stop_event(parent), asyncio.Event()
    node = Node(
        settings,
        watchers=sinks.watchers(),
        log=stores.log,
        coordination=stores.coordination,
        fetch=peers.fetch,
        planner=planner,
        on_end=lambda why: _end(why, logger, stopping, id_taken),
    )
    server = GrpcServer(
        node,
        on_malformed=sinks.malformed,
        on_heartbeat=sinks.heartbeat,
        on_deleted=sinks.deleted,
        security=security,
        tracer=tracer,
        peers=peers,
    )
    _attach(sinks, server, _metrics_of(server, pauses, security))
    try:
        port = await server.listen()
        kafka = await serve_kafka(
            server,
            security,
            failure=sinks.failed,
            full=sinks.kafka_full,
            warn=sinks.few_descriptors,
        )
        host, _ = settings.serving.listen_address
        address = f"{host}:{port}"
        logger.info("loading", address=address, store=settings.storage.shown_store)
        if not await _load(server, stopping):
            await server.stop()
            return 0
        asked_at = server.advertised if security.tls else address
        pages = Pages(settings.serving, security, sinks.metrics, asked_at)
        await _announce(stores, server, security)
    except (CannotServeKafka, NodeIdTaken, OSError, Damaged, LogError) as error:
        logger.error("cannot_start", what=str(error))
        await server.stop()
        return CANNOT_START
    logger.info(
        "serving",
        address=address,
        metrics=pages.metrics_url,
        console=pages.console_url,
        kafka=kafka,
        shards=settings.storage.shards,
    )
    notify("READY=1", f"STATUS=serving on {host}:{port}")
    await _until_told(stopping, security, parent)
    logger.info("stopping")
    notify("STOPPING=1", "STATUS=draining")
    await _stop(server, logger)
    await planner.close()
    await peers.close()
    pages.close()
    await asyncio.to_thread(end_traces)
    logger.info("stopped")
    return CANNOT_GO_ON if id_taken.is_set() else 0


async def _reserve(
    stores: Stores, settings: Settings, security: Security, parent: Parent | None
) -> str | None:
    """Reserve this node's place where workers may run nodes.

    Returns:
        The token of those that workers run; None: there are enough, and this one is a worker's.
    Raises:
        LogError: the store fails.
    """
    most = None if parent is None else parent.most_nodes
    if stores.reservations is None or (security.guard is not None and most is None):
        return security.token
    token = await asyncio.to_thread(
        stores.reservations.reserve,
        settings.cluster.node_id,
        most,
        security.token or new_token(),
        settings.storage.store_session_timeout_ms / 1000,
    )
    if token is not None and most is not None:
        security.use_token(token)
    return token


async def _announce(stores: Stores, server: GrpcServer, security: Security) -> None:
    """Have clients that know the store find this node. Raises `LogError`."""
    stores.announce(server.advertised, security.token)
    if stores.reservations is not None:
        await asyncio.to_thread(stores.reservations.notify)


def _end(why: str, logger: Any, *events: asyncio.Event) -> None:
    """Say that another process has this node's id, and have events tell of it."""
    logger.error("node_id_taken", what=why)
    for event in events:
        event.set()


async def _until_told(stopping: asyncio.Event, security: Security, parent: Parent | None) -> None:
    """Read changed files of security again, until the node is told to stop."""
    watching = asyncio.create_task(security.watch())
    await stopping.wait()
    watching.cancel()
    if parent is not None:
        asyncio.get_running_loop().remove_reader(sys.stdin)


async def _stop(server: GrpcServer, logger: Any) -> None:
    """Drain and hand over within a time limit; whatever was acknowledged is durable already."""
    most_s = server.node.settings.serving.drain_timeout_ms / 1000 + HAND_OVER_S
    try:
        async with asyncio.timeout(most_s):
            await server.stop()
    except TimeoutError:
        logger.error(
            "stopped_hard", what=f"still stopping after {most_s:g} s: does the store hang?"
        )
        # Threads may hang too, and a normal exit of the interpreter would wait for them.
        os._exit(CANNOT_STOP)


def _tracer(config: ObserveConfig, name: str) -> tuple[Tracer, Callable[[], None]]:
    """The tracer, and the function that flushes and closes it. Raises `CannotTrace`."""
    if not config.otel_endpoint:
        return NO_TRACES, lambda: None
    return open_tracer(config.otel_endpoint, config.otel_sample_percent, name)


def _attach(sinks: EventSinks, server: GrpcServer, metrics: Metrics) -> None:
    loop = asyncio.get_running_loop()
    sinks.metrics = metrics
    sinks.on_store = lambda is_there: loop.call_soon_threadsafe(server.show_store, is_there)


def _metrics_of(server: GrpcServer, pauses: ShortPauses, security: Security) -> Metrics:
    node = server.node
    patterns = node.settings.observe.metrics_groups.split(",")
    return Metrics(
        stats=node.stats,
        loop_lag_s=lambda: node.probe.lag_s,
        loop_lag_p99_s=lambda: node.probe.lag_p99_s,
        overload=server.overload_stats,
        calls=server.pipeline.answered_calls,
        heartbeats=lambda: server.pipeline.heartbeats,
        latencies=lambda: server.pipeline.latencies,
        cluster=node.cluster_stats,
        kafka=lambda: next((other.stats() for other in server.beside), KafkaStats()),
        pauses=pauses,
        security=security,
        groups=[pattern.strip() for pattern in patterns if pattern],
        group_stats=node.group_stats,
    )


async def _load(server: GrpcServer, stopping: asyncio.Event) -> bool:
    """Load all shards; False if the node was told to stop meanwhile."""
    loading = asyncio.create_task(server.load())
    stop_task = asyncio.create_task(stopping.wait())
    await asyncio.wait((loading, stop_task), return_when=asyncio.FIRST_COMPLETED)
    stop_task.cancel()
    if not loading.done():
        loading.cancel()
        return False
    await loading
    return True


def run(main: Coroutine[Any, Any, int]) -> int:  # Any: nothing is sent into it.
    """Run a coroutine to its end, on uvloop where it is installed, else on asyncio's own loop."""
    if sys.platform != "win32":
        with contextlib.suppress(ImportError):
            import uvloop

            return int(uvloop.run(main))
    return asyncio.run(main)
