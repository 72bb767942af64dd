"""Connections of Kafka clients: bytes as they arrive, at a node that authenticates and at one that
does not. The first byte chooses the node, the second how the bytes are cut into reads.

Whatever comes is answered in whole frames or the connection is closed, nothing is raised, and the
next client is answered.
"""

import asyncio
import struct

from coordinator.kafka.apis import API_VERSIONS, APIS
from coordinator.kafka.frames import framed
from coordinator.runtime.node import Node
from coordinator.runtime.watchers import Watchers
from coordinator.security.authenticator import Authenticator
from coordinator.security.guard import Guard
from coordinator.security.tokens import Tokens, digest_of
from coordinator.service.kafka.addresses import Addresses
from coordinator.service.kafka.connection import KafkaConnection
from coordinator.service.kafka.listener import KafkaListener
from coordinator.service.pipeline import Pipeline
from coordinator.service.topics import Topics
from coordinator.settings import Settings
from coordinator.testing.engine.loop import SimulatedLoop
from tests.fuzz.targets.kafka_bodies import KINDS, example_of, head, written
from tests.fuzz.targets.web_tokens import VERIFIER

TOKEN = "cgc_a-token"
HELLO = framed(struct.pack(">hhih", API_VERSIONS.key, 0, 1, -1))
LOOP = SimulatedLoop()


class MemoryTransport:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False
        self.protocol = None

    def get_extra_info(self, name):
        return ("10.0.0.1", 5_000) if name == "peername" else None

    def write(self, data: bytes) -> None:
        if not self.is_closed:
            self.written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close


class Served:
    """A listener over a node of its own."""

    def __init__(self, guard: Guard | None) -> None:
        self.failures: list = []
        self.node = Node(
            Settings.of(shards=1, group_initial_rebalance_delay_ms=0),
            watchers=Watchers(
                events=lambda *_: None,
                failure=lambda *what: self.failures.append(what),
                recovery=lambda _: None,
            ),
        )
        pipeline = Pipeline(self.node, guard=guard, on_malformed=lambda *what: None)
        self.listener = KafkaListener(
            pipeline,
            self.node.settings.kafka,
            Topics(self.node),
            guard=guard,
            on_failure=lambda *what: self.failures.append(what),
        )
        self.listener.context.addresses = Addresses(self.node, "here:9092")

    async def talk(self, reads: list[bytes]) -> bytes:
        """Return the answers to a client that sends this, and waits a while."""
        transport = MemoryTransport()
        transport.protocol = connection = KafkaConnection(self.listener)
        connection.connection_made(transport)
        for read in reads:
            if transport.is_closed:
                break
            connection.data_received(read)
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        transport.close()
        await asyncio.sleep(0.05)
        assert self.listener.connections == 0
        assert self.failures == []
        return transport.written


async def _make() -> list[Served]:
    tokens = Tokens([("worker", digest_of(TOKEN))])
    guard = Guard(Authenticator(tokens, VERIFIER), None)
    served = [Served(None), Served(guard)]
    for each in served:
        await each.node.start("127.0.0.1", 1)
    return served


SERVED = LOOP.run_until_complete(_make())


def target(data: bytes) -> None:
    if len(data) < 2:
        return
    served = SERVED[data[0] % 2]
    size = 1 + data[1] * 8
    stream = data[2:]
    reads = [stream[at : at + size] for at in range(0, len(stream), size)]
    answers = LOOP.run_until_complete(served.talk(reads))
    while answers:
        (length,) = struct.unpack_from(">i", answers)
        assert 0 <= length <= len(answers) - 4
        answers = answers[4 + length :]
    assert LOOP.run_until_complete(served.talk([HELLO]))[4:8] == b"\0\0\0\1"


def seeds():
    for number, (api, version) in enumerate(KINDS):
        request = framed(head(api, version) + written(example_of(api, version, filled=True)))
        yield b"\0\xff" + request * (1 + number % 2)
    handshake = framed(head(APIS[17], 1) + b"\0\5PLAIN")
    token = b"\0me\0" + TOKEN.encode()
    for start in (handshake, framed(head(APIS[17], 0) + b"\0\5PLAIN")):
        yield b"\1\xff" + start + framed(token) + HELLO
    said = framed(head(APIS[36], 0) + struct.pack(">i", len(token)) + token)
    yield b"\1\xff" + handshake + said + HELLO
    yield b"\1\1" + HELLO + handshake + said + framed(head(APIS[16], 0))
    yield b"\0\3" + HELLO * 3
