"""Connections of Kafka clients: bytes as they arrive, at a node that authenticates and at one that
does not. The first byte chooses the node, the second how the bytes are cut into reads.

Whatever comes is answered in whole frames or the connection is closed, nothing is raised, and the
next client is answered.
"""

import asyncio
import struct

from coordinator.kafka.apis import API_VERSIONS, APIS
from coordinator.kafka.frames import framed
from coordinator.security.authenticator import Authenticator
from coordinator.security.guard import Guard
from coordinator.security.tokens import Tokens, digest_of
from coordinator.testing.engine.loop import SimulatedLoop
from tests.campaigns.fuzz.kafka_bodies import KINDS, example_of, head
from tests.campaigns.fuzz.web_tokens import VERIFIER
from tests.kit.kafka.messages import written
from tests.unit.service.kafka_wire import KafkaNode

TOKEN = "cgc_a-token"
HELLO = framed(struct.pack(">hhih", API_VERSIONS.key, 0, 1, -1))
LOOP = SimulatedLoop()


async def _make() -> list[KafkaNode]:
    guard = Guard(Authenticator(Tokens([("worker", digest_of(TOKEN))]), VERIFIER), None)
    nodes = [KafkaNode(), KafkaNode(guard=guard, asks_sasl=True)]
    for node in nodes:
        await node.node.start("here", 7400)
    return nodes


NODES = LOOP.run_until_complete(_make())


async def _talk(node: KafkaNode, reads: list[bytes]) -> bytes:
    """The answers to a client that sends this, and waits a while."""
    client = node.connect()
    for read in reads:
        if client.is_closed:
            break
        client.receive(read)
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    client.hang_up()
    await asyncio.sleep(0.05)
    assert node.listener.connections == 0
    assert node.failures == []
    return b"".join(client.transport.writes)


def target(data: bytes) -> None:
    if len(data) < 2:
        return
    node, size, stream = NODES[data[0] % 2], 1 + data[1] * 8, data[2:]
    reads = [stream[at : at + size] for at in range(0, len(stream), size)]
    answers = LOOP.run_until_complete(_talk(node, reads))
    while answers:
        (length,) = struct.unpack_from(">i", answers)
        assert 0 <= length <= len(answers) - 4
        answers = answers[4 + length :]
    assert LOOP.run_until_complete(_talk(node, [HELLO]))[4:8] == b"\0\0\0\1"


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
