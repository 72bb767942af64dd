"""gRPC server of a node: options, services, health, shutdown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from coordinator.dial import address_of
from coordinator.observe.kafka_metrics import KafkaStats
from coordinator.observe.overload_gauges import OverloadStats
from coordinator.runtime.loop_probe import LAGS_S
from coordinator.runtime.node import Node
from coordinator.security.loading import Security
from coordinator.service.grpc.accept_queue import QUEUE_LIMIT_S, AcceptQueue, newest_server
from coordinator.service.grpc.calls import HEARTBEAT
from coordinator.service.grpc.checked_server import CheckedServer
from coordinator.service.grpc.cluster_service import ClusterService
from coordinator.service.grpc.group_service import AdminService, GroupService
from coordinator.service.grpc.health_service import HealthService
from coordinator.service.grpc.replica_service import ReplicaService
from coordinator.service.grpc.session_service import SessionService
from coordinator.service.grpc.topic_service import TopicService
from coordinator.service.pipeline import DeletionSink, MalformedSink, Pipeline
from coordinator.service.topics import TopicPeers, Topics
from coordinator.service.tracing import NO_TRACES, Tracer
from coordinator.settings.sections import LimitsConfig
from coordinator.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    cluster_pb2,
    cluster_pb2_grpc,
    group_pb2,
    group_pb2_grpc,
    replica_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    topics_pb2,
    topics_pb2_grpc,
)

SERVICES = (
    group_pb2.DESCRIPTOR.services_by_name["GroupCoordinator"].full_name,
    session_pb2.DESCRIPTOR.services_by_name["GroupSessions"].full_name,
    admin_pb2.DESCRIPTOR.services_by_name["GroupAdmin"].full_name,
    cluster_pb2.DESCRIPTOR.services_by_name["ClusterAdmin"].full_name,
    topics_pb2.DESCRIPTOR.services_by_name["TopicAdmin"].full_name,
)
HANDSHAKE_MS = 10_000


def server_options(limits: LimitsConfig) -> list[tuple[str, Any]]:
    """Channel arguments of the server; each avoids a problem that was measured."""
    return [
        ("grpc.max_receive_message_length", limits.max_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),  # It would spread connections, not groups.
        # Of each of gRPC's queues, see `accept_queue.py`. In one queue of 100,000 calls waited for
        # half a minute, and made 1.4 GiB of memory of themselves.
        ("grpc.server.max_pending_requests", limits.max_pending_requests),
        ("grpc.server.max_pending_requests_hard_limit", limits.max_pending_requests),
        ("grpc.server_max_unrequested_time_in_server", QUEUE_LIMIT_S),
        # A client that is stopped, not killed, is noticed after the ping time-out. Both are
        # needed: the keepalive time-out alone leaves it at a minute.
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.ping_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # gRPC tells clients the limit; `CheckedServer` refuses those that ignore it.
        ("grpc.max_metadata_size", limits.max_metadata_bytes),
        ("grpc.absolute_max_metadata_size", limits.max_metadata_bytes),
        # Calls beyond it wait at the client; without it a connection may open any number.
        ("grpc.max_concurrent_streams", limits.max_calls_per_connection),
        # Closes connections that send nothing; by default after two minutes.
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        # Clients may ping every five seconds, also without calls.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_ping_strikes", 0),
    ]


class OtherTransport(Protocol):
    """Transport beside gRPC."""

    async def accept(self) -> None:
        """Serve from now on: the node has loaded."""
        ...

    def leave(self) -> None:
        """Take no new connections: the node is about to stop."""

    async def stop(self, grace_s: float) -> None:
        """End connections: those with a call under way when it is answered, or the time is over."""
        ...

    def stats(self) -> KafkaStats:
        """Connections and requests. Thread-safe."""
        ...


def _is_no_hang_up(record: logging.LogRecord) -> bool:
    """False for the log record of a batch that failed because the peer of a stream has gone."""
    error = record.exc_info[0] if record.exc_info else None
    return error is None or error.__name__ != "ExecuteBatchError"


class GrpcServer:
    """Serves a node over gRPC, with health and reflection.

    Args:
        on_malformed, on_heartbeat, on_deleted, tracer: see `Pipeline`.
        security: TLS and guard; None: plain text without authentication.
        peers: asked for their topics; None: other nodes are not asked.
    """

    def __init__(
        self,
        node: Node,
        *,
        on_malformed: MalformedSink,
        on_heartbeat: Callable[[float], None] = lambda seconds: None,
        security: Security | None = None,
        tracer: Tracer = NO_TRACES,
        on_deleted: DeletionSink = lambda group, principal, peer, is_known: None,
        peers: TopicPeers | None = None,
    ) -> None:
        self.node = node
        self.topics = Topics(node, peers)
        self._security = security
        self.pipeline = Pipeline(
            node,
            guard=None if security is None else security.guard,
            tracer=tracer,
            on_malformed=on_malformed,
            on_heartbeat=on_heartbeat,
            on_deleted=on_deleted,
        )
        self.port = 0
        self.beside: list[OtherTransport] = []
        """Other transports of the same pipeline: stopped with this one, once the node has."""
        self.kafka = ""
        """HOST:PORT at which Kafka's clients reach this node; empty: they are not served."""
        self._advertised = ("", 0)
        self._health = HealthService(self.pipeline, SERVICES)
        self._is_loaded, self._has_store = False, True
        self._server: grpc.aio.Server | None = None

    async def listen(self) -> int:
        """Bind and start to serve; calls are answered COORDINATOR_LOAD_IN_PROGRESS until `load`.

        Returns:
            The port; chosen by the system if the settings say 0.
        Raises:
            OSError: the address cannot be bound.
        """
        settings = self.node.settings
        before = newest_server()
        # Idempotent; gRPC logs a traceback for each stream whose peer is gone in a write.
        logging.getLogger("grpc._cython.cygrpc").addFilter(_is_no_hang_up)
        server = self._server = grpc.aio.server(options=server_options(settings.limits))
        self.accept_queue = AcceptQueue(before)
        server.add_generic_rpc_handlers([self.accept_queue])
        host, port = settings.serving.listen_address
        try:
            self.port = self._bind(server, f"{host}:{port}")
        except RuntimeError as error:
            # gRPC has written the reason to standard error.
            raise OSError(f"cannot listen at listen, {settings.serving.listen}") from error
        self._advertised = (
            (settings.serving.advertised_host or host).strip("[]"),
            settings.serving.advertised_port or self.port,
        )
        self.add_services(server)
        await server.start()
        return self.port

    @property
    def advertised(self) -> str:
        """HOST:PORT that this node tells clients and other nodes."""
        return address_of(*self._advertised)

    def overload_stats(self) -> OverloadStats:
        """Return queue lengths, ages, drops and lags of the event loop. Thread-safe."""
        probe, turns = self.node.probe, self.pipeline.turns
        backlog = self.accept_queue.backlog
        return OverloadStats(
            queue_age_s=probe.queue_age_s,
            waiting={"not_taken_up": backlog.waiting, **turns.waiting},
            dropped={"not_taken_up": backlog.dropped, **turns.dropped},
            lags_s=LAGS_S,
            lag_counts=tuple(probe.lag_counts),
            lag_total_s=probe.lag_total_s,
            paused_s=probe.paused_s,
        )

    async def load(self) -> None:
        """Load every shard, or join the cluster; then report healthy.

        Raises:
            Damaged, Unavailable, Ambiguous: see `Node.start`.
        """
        self.node.probe.queue_age = self._queue_age_s
        await self.node.start(*self._advertised, self.kafka)
        for other in self.beside:
            await other.accept()
        self._is_loaded = True
        self.show_store(self._has_store)

    def show_store(self, is_there: bool) -> None:
        """Report healthy only while the files of the store are there. Called in the loop."""
        self._has_store = is_there
        self._health.set(serving=self._is_loaded and is_there)

    async def stop(self) -> None:
        """Shut down: report unhealthy, answer every parked call, stop serving."""
        if self._server is None:
            return
        self._is_loaded = False
        self._health.set(serving=False)
        grace_s = self.node.settings.serving.drain_timeout_ms / 1000
        for other in self.beside:
            other.leave()
        await self.node.stop()
        await self.topics.close()
        self.pipeline.feed.close()
        await asyncio.gather(
            self._server.stop(grace_s), *(other.stop(grace_s) for other in self.beside)
        )

    def _queue_age_s(self, now_s: float) -> float:
        return max(self.accept_queue.oldest_s(now_s), self.pipeline.turns.age_s())

    def _bind(self, server: grpc.aio.Server, address: str) -> int:
        tls = None if self._security is None else self._security.tls
        if tls is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, tls.credentials())

    def add_services(self, server: grpc.aio.Server) -> None:
        """Put every service behind the pipeline, on a server of gRPC or on one without sockets."""
        groups = GroupService(self.pipeline)
        topics = TopicService(self.pipeline, self.topics)
        checked = CheckedServer(server, self.pipeline, {HEARTBEAT: groups.beat})
        # Any: services are given a `GrpcCall` where gRPC's types have its context.
        services: list[tuple[Any, Any]] = [
            (group_pb2_grpc.add_GroupCoordinatorServicer_to_server, groups),
            (session_pb2_grpc.add_GroupSessionsServicer_to_server, SessionService(self.pipeline)),
            (admin_pb2_grpc.add_GroupAdminServicer_to_server, AdminService(self.pipeline)),
            (replica_pb2_grpc.add_ShardReplicaServicer_to_server, ReplicaService(self.node)),
            (cluster_pb2_grpc.add_ClusterAdminServicer_to_server, ClusterService(self.node)),
            (topics_pb2_grpc.add_TopicAdminServicer_to_server, topics),
            (topics_pb2_grpc.add_TopicReplicaServicer_to_server, topics),
            (health_pb2_grpc.add_HealthServicer_to_server, self._health),
        ]
        for add, service in services:
            add(service, checked)
        names = (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(
            reflection.aio.ReflectionServicer(names), checked
        )
