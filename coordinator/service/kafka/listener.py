"""Listener for Kafka's clients: accepts connections, counts them, closes them at the end.

At its limit of connections, one that has neither authenticated nor made a request yet makes way,
the one that came first. If there is none, the newcomer is turned away: its ApiVersions is answered
with an error that clients tell in words. That is done for `AWAY_MAX` at a time; further ones are
closed at once.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any

from coordinator.observe.kafka_metrics import KafkaStats
from coordinator.runtime.fetch_waits import FetchWaits
from coordinator.security.authenticator import principal_of_peer
from coordinator.security.guard import Guard
from coordinator.service.calls import CallingPeer, Kind
from coordinator.service.kafka.addresses import BrokerAddresses
from coordinator.service.kafka.authentication import (
    NOBODY_ASKED,
    TURNED_AWAY,
    ConnectionAuthentication,
)
from coordinator.service.kafka.buffers import FRAMES, Buffers
from coordinator.service.kafka.calls import KafkaCall
from coordinator.service.kafka.connection import KafkaConnection
from coordinator.service.kafka.deadlines import Deadlines, Owed
from coordinator.service.kafka.requests import Authentication, Context
from coordinator.service.kafka.traffic import Ended, Traffic
from coordinator.service.pipeline import Pipeline
from coordinator.service.refusals import Exhausted, Malformed
from coordinator.service.topics import Topics
from coordinator.settings.parsers import is_wildcard
from coordinator.settings.sections import KafkaConfig

FRAME = Kind("Frame", is_open=True)
"""Call kind of undecodable frames."""
BACKLOG = 1_024
ACCEPT_AGAIN_S = 0.5
"""Seconds until the next accept after one failed, usually for want of file descriptors."""
HANDSHAKE_S = 10.0
HANDSHAKES_MAX = 512
"""TLS handshakes under way; one more ends the one that began first."""
AWAY_MAX = 64
LOG_EVERY_S = 10.0
"""Shortest time between two lines about connections that are turned away."""
KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""A client whose machine is gone is noticed after a minute."""


class KafkaListener:
    """Serves a node's pipeline to Kafka's clients.

    Args:
        topics: of the cluster; followed while this listens.
        tls: returns the context for each connection, so that certificates can be rotated; None:
            plain text.
        guard: None: callers are not authenticated.
        most: most connections, if the system allows fewer than the settings.
        on_failure: called if nothing can be accepted, or with a bug of ours that ended a call.
        on_full: called with a peer that is turned away, and why; once in `LOG_EVERY_S` at most.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        config: KafkaConfig,
        topics: Topics,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        guard: Guard | None = None,
        most: int | None = None,
        on_failure: Callable[[str, BaseException | None], None] = lambda what, error: None,
        on_full: Callable[[str, str], None] = lambda peer, why: None,
    ) -> None:
        self._config = config
        self._on_failure = on_failure
        self._on_full = on_full
        self._tls = tls
        self._guard = guard
        self._most = config.kafka_max_connections if most is None else most
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._opening: dict[asyncio.Task[None], None] = {}
        self._connections: set[KafkaConnection] = set()
        self._away: set[KafkaConnection] = set()
        self._by_host: Counter[str] = Counter()
        self._logged_at_s = -LOG_EVERY_S
        self._sweeping: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self.deadlines = Deadlines[KafkaConnection](
            config.kafka_request_timeout_ms / 1000, self._overdue
        )
        self.buffers = Buffers[KafkaConnection](
            FRAMES * config.kafka_max_frame_bytes, self._keeps_too_much
        )
        self.traffic = Traffic()
        self.most_frame_bytes = config.kafka_max_frame_bytes
        self.advertised = config.kafka_advertise or config.kafka_listen
        """HOST:PORT that clients are told."""
        node = pipeline.node
        self.context = Context(
            pipeline, BrokerAddresses(node, self.advertised), topics, FetchWaits()
        )
        shared = node.settings.storage.shared_store
        if shared is not None:
            self.context.cluster_id = shared.name
        self.port = 0

    async def listen(self, *, accepting: bool = True) -> int:
        """Bind and accept connections.

        Args:
            accepting: False: connections are refused until `accept`.
        Returns:
            The port; chosen by the system if the settings say 0.
        Raises:
            OSError: the address cannot be bound.
        """
        address = self._config.kafka_address
        assert address is not None
        host, port = address[0].strip("[]"), address[1]
        has_both = socket.has_dualstack_ipv6()
        if host == "*":
            host = "::" if has_both else "0.0.0.0"  # noqa: S104  # The operator asks for it.
        is_ipv6 = ":" in host
        is_dual = is_ipv6 and has_both and is_wildcard(host)
        family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
        # asyncio sets TCP_NODELAY only where the protocol is named.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_ipv6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not is_dual)
            bound.bind((host, port))
        except OSError:
            bound.close()
            raise
        self._socket = bound
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]
        host, port = self._config.kafka_advertised_address or address
        self.advertised = f"{host}:{port or self.port}"
        self.context.addresses = BrokerAddresses(self.context.pipeline.node, self.advertised)
        self.context.topics.follow()
        if accepting:
            await self.accept()
        return self.port

    async def accept(self) -> None:
        """Accept connections from now on."""
        assert self._socket is not None
        self._socket.listen(BACKLOG)
        self._accepting = asyncio.create_task(self._accept(self._socket))
        self.sweep()

    def leave(self) -> None:
        """Take no new connections, and send clients of calls that end for it to other nodes."""
        self.context.is_leaving = True
        tasks = [*self._opening] if self._accepting is None else [self._accepting, *self._opening]
        for task in tasks:
            task.cancel()
        if self._socket is not None:
            self._socket.close()

    async def stop(self, grace_s: float) -> None:
        """Close every connection after its call; those that are not done in time at once."""
        self.leave()
        self.context.waits.close()
        for connection in [*self._connections, *self._away]:
            connection.finish()
        try:
            async with asyncio.timeout(grace_s):
                while self._connections or self._away:
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            for connection in [*self._connections, *self._away]:
                connection.abort()
        self.deadlines.stop()
        if self._sweeping is not None:
            self._sweeping.cancel()

    @property
    def connections(self) -> int:
        """Open connections, without those that are turned away."""
        return len(self._connections)

    def stats(self) -> KafkaStats:
        """Connections and requests. Thread-safe."""
        traffic = self.traffic
        return KafkaStats(traffic.connections(), traffic.requests(), dict(traffic.ended))

    # --- Connections ---

    def connected(
        self, connection: KafkaConnection, transport: asyncio.Transport
    ) -> tuple[CallingPeer, Authentication]:
        """Count a connection; return its caller, and who authenticates it."""
        peer = transport.get_extra_info("peername") or ("", 0)
        host = peer[0].removeprefix("::ffff:")
        caller = CallingPeer(f"{host}:{peer[1]}", f"/{host}")
        self.deadlines.expect(connection, Owed.HELLO)
        why = self._no_room(host)
        if why is not None:
            self._turn_away(connection, caller, *why)
            return caller, TURNED_AWAY
        self._connections.add(connection)
        self._by_host[host] += 1
        if self._guard is None:
            return caller, NOBODY_ASKED
        certificate: dict[str, Any] = transport.get_extra_info("peercert") or {}
        principal = principal_of_peer(certificate)
        pipeline = self.context.pipeline
        return caller, ConnectionAuthentication(pipeline, self._guard, caller, principal)

    def lost(self, connection: KafkaConnection) -> None:
        self.deadlines.settle(connection, *Owed)
        self.buffers.hold(connection, 0)
        if connection in self._connections:
            self._connections.discard(connection)
            host = connection.caller.host[1:]
            self._by_host[host] -= 1
            if not self._by_host[host]:
                del self._by_host[host]
        self._away.discard(connection)
        if not self._connections and not self._away:
            self._empty.set()

    def refused(self, connection: KafkaConnection, why: str) -> None:
        """Count and log bytes for which a connection is closed."""
        self.traffic.ended[Ended.NOT_UNDERSTOOD] += 1
        self._log(connection.caller, why)

    def failed(self, error: BaseException) -> None:
        """Report a bug of ours."""
        self._on_failure("a call over Kafka's wire failed", error)

    # --- Inside ---

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                self._on_failure(f"no Kafka connection can be taken: {error}", None)
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            if len(self._away) >= AWAY_MAX and len(self._connections) >= self._most:
                accepted.close()  # Before a TLS handshake.
                self.traffic.ended[Ended.TOO_MANY] += 1
                continue
            if len(self._opening) >= HANDSHAKES_MAX:
                next(iter(self._opening)).cancel()
            task = loop.create_task(self._open(accepted))
            self._opening[task] = None
            task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed(error)

    async def _open(self, accepted: socket.socket) -> None:
        context = None if self._tls is None else self._tls()
        peer = ""
        try:
            accepted.setblocking(False)
            peer = "{}:{}".format(*accepted.getpeername()[:2])
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in KEEPALIVE:
                if hasattr(socket, name):
                    accepted.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: KafkaConnection(self),
                accepted,
                ssl=context,
                ssl_handshake_timeout=None if context is None else HANDSHAKE_S,
            )
        except OSError as error:  # That of a handshake is one too.
            accepted.close()
            if context is not None:
                self.traffic.ended[Ended.NOT_UNDERSTOOD] += 1
                self._log(CallingPeer(peer, ""), f"the TLS handshake failed: {error}")
        except asyncio.CancelledError:
            accepted.close()
            raise

    def _no_room(self, host: str) -> tuple[Ended, str] | None:
        """Return the reason to turn a connection away, in words; None: there is room."""
        most_of_host = self._config.kafka_max_connections_per_address
        if most_of_host and self._by_host[host] >= most_of_host:
            reason = (
                f"{most_of_host} connections come from {host} (kafka_max_connections_per_address)"
            )
            return Ended.TOO_MANY_OF_ADDRESS, reason
        try:
            self.context.pipeline.quotas.check_memory()
        except Exhausted as error:
            return Ended.NO_MEMORY, str(error)
        if len(self._connections) >= self._most and not self._make_way():
            return Ended.TOO_MANY, f"{self._most} connections are open (kafka_max_connections)"
        return None

    def _make_way(self) -> bool:
        """Close the connection that has owed its first request the longest; False: none does."""
        for connection in self.deadlines.all(Owed.HELLO):
            if connection in self._connections:
                self.traffic.ended[Ended.TOO_SLOW] += 1
                self.lost(connection)  # Now: the transport tells of it in a later turn.
                connection.abort()
                return True
        return False

    def _turn_away(
        self, connection: KafkaConnection, caller: CallingPeer, ended: Ended, reason: str
    ) -> None:
        self.traffic.ended[ended] += 1
        if len(self._away) >= AWAY_MAX:
            connection.abort()
        self._away.add(connection)
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_at_s >= LOG_EVERY_S:
            self._logged_at_s = now_s
            self._on_full(caller.peer, reason)

    def _overdue(self, connection: KafkaConnection, owed: Owed) -> None:
        self.traffic.ended[Ended.TOO_SLOW] += 1
        self._log(connection.caller, f"it {owed} in time")
        connection.abort()

    def _keeps_too_much(self, connection: KafkaConnection) -> None:
        self.traffic.ended[Ended.NO_MEMORY] += 1
        self._log(connection.caller, "all connections together keep too many unfinished bytes")
        connection.abort()

    def sweep(self) -> None:
        """Close connections without any bytes since the last sweep."""
        interval_s = self._config.kafka_idle_timeout_ms / 1000
        for connection in [known for known in self._connections if known.has_rested()]:
            self.traffic.ended[Ended.IDLE] += 1
            connection.end()
        self._sweeping = asyncio.get_running_loop().call_later(interval_s, self.sweep)

    def _log(self, caller: CallingPeer, why: str) -> None:
        self.context.pipeline.refused(KafkaCall(FRAME, caller), Malformed([], why))
