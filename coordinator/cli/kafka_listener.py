"""Start of the listener for Kafka's clients, if a node has one: its codec is an extra."""

from __future__ import annotations

import resource
from collections.abc import Callable

from coordinator.security.loading import Security
from coordinator.service.grpc.server import GrpcServer

NEEDS_EXTRA = "kafka_listen needs the extra: consumer-group-coordinator[kafka-listener]"

SPARE_DESCRIPTORS = 512
"""File descriptors for everything else: gRPC's connections, pages, the store."""


class CannotServeKafka(Exception):
    """The extra is not installed."""


async def serve_kafka(
    server: GrpcServer,
    security: Security,
    *,
    failure: Callable[[str, BaseException | None], None],
    full: Callable[[str, str], None],
    warn: Callable[[str], None] = lambda what: None,
) -> str | None:
    """Bind for Kafka's clients, who are served once the node has loaded, and stop with gRPC.

    Args:
        failure, full: see `KafkaListener`.
        warn: called if the system allows fewer connections than the settings.
    Returns:
        HOST:PORT at which it listens; None: the settings ask for no listener.
    Raises:
        CannotServeKafka: the extra is not installed.
        OSError: the address cannot be bound.
    """
    config = server.node.settings.kafka
    if config.kafka_address is None:
        return None
    try:
        from coordinator.service.kafka.listener import KafkaListener
    except ImportError as error:
        raise CannotServeKafka(NEEDS_EXTRA) from error
    tls = security.tls
    listener = KafkaListener(
        server.pipeline,
        config,
        server.topics,
        tls=None if tls is None else lambda: tls.context,
        guard=security.guard,
        most=raise_descriptor_limit(config.kafka_max_connections, warn),
        on_failure=failure,
        on_full=full,
    )
    port = await listener.listen(accepting=False)
    server.kafka = listener.advertised
    server.beside.append(listener)
    return f"{config.kafka_address[0]}:{port}"


def raise_descriptor_limit(connections: int, warn: Callable[[str], None]) -> int:
    """Raise the limit of file descriptors as far as so many connections need it.

    Returns:
        The number of connections for which there are descriptors.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= connections + SPARE_DESCRIPTORS:
        return connections
    wanted = connections + SPARE_DESCRIPTORS
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < wanted:
        warn(
            f"the system allows {most} file descriptors, and kafka_max_connections needs {wanted}: "
            f"{max(1, most - SPARE_DESCRIPTORS)} connections are taken"
        )
    return max(1, min(connections, most - SPARE_DESCRIPTORS))
