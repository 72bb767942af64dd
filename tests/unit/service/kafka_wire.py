"""A node on the simulated loop, and Kafka clients that are connected to it without sockets."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct

import pytest

from coordinator.kafka.apis import APIS
from coordinator.kafka.schema import fields_of, response_schema
from coordinator.service.kafka import dispatch
from coordinator.service.kafka.addresses import BrokerAddresses
from coordinator.service.kafka.connection import KafkaConnection
from coordinator.service.kafka.listener import KafkaListener
from coordinator.service.topics import TopicCounts, Topics, TopicView
from tests.kit.kafka.messages import answer, frame, request
from tests.kit.nodes import PipelineNode

BY_NAME = {api.name: api for api in APIS.values()}
HIGH_WATER = 65_536


class Transport:
    """The server's end of a connection; what it writes is kept as long as nobody reads."""

    def __init__(self, peer, is_read=True) -> None:
        self.peer = peer
        self.writes: list[bytes] = []
        self.is_closing_ = self.is_lost = self.is_paused = False
        self.is_read = is_read
        self.unread_bytes = 0
        self.protocol: KafkaConnection | None = None

    def get_extra_info(self, name, default=None):
        return self.peer if name == "peername" else default

    def write(self, data: bytes) -> None:
        assert not self.is_closing_, "written after it was closed"
        self.writes.append(bytes(data))
        if not self.is_read:
            before, self.unread_bytes = self.unread_bytes, self.unread_bytes + len(data)
            if before <= HIGH_WATER < self.unread_bytes:
                self.protocol.pause_writing()

    def read_all(self) -> None:
        """The client reads what has been written."""
        was_full, self.unread_bytes, self.is_read = self.unread_bytes > HIGH_WATER, 0, True
        if was_full:
            self.protocol.resume_writing()
        if self.is_closing_:
            self.abort()

    def is_closing(self) -> bool:
        return self.is_closing_

    def is_reading(self) -> bool:
        return not self.is_paused

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        """Close at once if everything is sent, else once it is, as asyncio does."""
        if self.is_read and not self.is_closing_:
            self.abort()
        self.is_closing_ = True

    def abort(self) -> None:
        self.is_closing_ = True
        asyncio.get_running_loop().call_soon(self._lost)

    def _lost(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self.protocol.connection_lost(None)


class Client:
    """One connection of a client."""

    def __init__(self, listener: KafkaListener, host="10.0.0.1", port=5_000, is_read=True) -> None:
        self.transport = Transport((host, port), is_read)
        self.connection = KafkaConnection(listener)
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)
        self.sent: dict[int, tuple] = {}
        self._next_id = 0
        self._taken = 0

    def bytes_of(self, name: str, version: int, client_id="client", **values) -> bytes:
        """The frame of a request, which its answer will be told from."""
        api = BY_NAME[name]
        self._next_id += 1
        self.sent[self._next_id] = (api, version)
        return frame(request(api, version, self._next_id, client_id, **values))

    def receive(self, data: bytes) -> None:
        """The server receives bytes."""
        self.connection.data_received(data)

    def send(self, name: str, version: int, **values) -> int:
        """Send a request, and return its correlation id."""
        self.receive(self.bytes_of(name, version, **values))
        return self._next_id

    async def ask(self, name: str, version: int, **values):
        """Send a request, and return its answer."""
        asked = self.send(name, version, **values)
        while asked not in (answers := dict(self.answers())):
            assert not self.transport.is_lost, "the connection was closed"
            await asyncio.sleep(0.001)
        return answers[asked]

    def answers(self) -> list[tuple[int, object]]:
        """All answers so far, in their order: correlation id and message."""
        data, at, found = b"".join(self.transport.writes), 0, []
        while at < len(data):
            (size,) = struct.unpack_from(">i", data, at)
            body = data[at + 4 : at + 4 + size]
            assert len(body) == size
            (correlation_id,) = struct.unpack_from(">i", body)
            found.append(answer(*self.sent[correlation_id], body))
            at += 4 + size
        return found

    def hang_up(self) -> None:
        """The client goes away."""
        self.transport.close()

    @property
    def is_closed(self) -> bool:
        return self.transport.is_closing_


class KafkaNode(PipelineNode):
    """A node with a listener that no socket belongs to; `asks_sasl`: its guard asks clients."""

    def __init__(self, guard=None, topics=None, asks_sasl=False, **settings) -> None:
        super().__init__(on_pipeline={"guard": guard}, **{"shards": 1, **settings})
        config = self.node.settings.kafka
        self.listener = KafkaListener(
            self.pipeline,
            config,
            FixedTopics(self.node, topics or {"t": 4}),
            guard=guard if asks_sasl else None,
            on_failure=lambda *what: self.failures.append(what),
        )
        self.listener.context.addresses = BrokerAddresses(self.node, "here:9092")

    def connect(self, **options) -> Client:
        return Client(self.listener, **options)


class FixedTopics(Topics):
    """Topics that do not change."""

    def __init__(self, node, counts) -> None:
        super().__init__(node)
        found = {name: TopicCounts(set=count) for name, count in counts.items()}
        self.view = TopicView(found, is_complete=True)

    async def refresh(self, max_age_s: float = 0.0) -> TopicView:
        return self.view


def check_names(api, answer) -> None:
    """Names that no version has are mistakes of typing: they would be left out without a word."""
    _check_names([response_schema(api.key, v) for v in range(api.low, api.high + 1)], answer)


def _check_names(schemas, answer) -> None:
    known: dict[str, list] = {}
    for field in itertools.chain.from_iterable(map(fields_of, schemas)):
        known.setdefault(field.name, []).extend(filter(None, [field.message]))
    assert set(answer) <= set(known)
    for name, value in answer.items():
        if known[name]:
            for item in value:
                _check_names(known[name], item)


async def _checked_answer(request, served=dispatch.answer):
    answer = await served(request)
    check_names(request.header.api, answer)
    return answer


@contextlib.asynccontextmanager
async def node(**options):
    """A node for the length of a test; it must not have failed in it.

    A test that makes it fail clears `failures`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "answer", _checked_answer)
        server = KafkaNode(**options)
        async with server.running():
            try:
                yield server
            finally:
                await server.listener.stop(1.0)
