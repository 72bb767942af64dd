"""Connections that abuse Kafka's wire while a member of a group goes about its business.

The server bears each: the member's heartbeats are answered, memory grows by less than a bound,
nothing fails in the log, and once the connections are gone so are their descriptors.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct

import pytest

from coordinator.kafka import apis
from tests.integration.waiting import until
from tests.kit.kafka.client import connected
from tests.kit.kafka.messages import frame, header_bytes, request
from tests.kit.patience import HANG_S
from tests.kit.serving import Process

MOST_BYTES = 4 * 2**20
SPARE_DESCRIPTORS = 3
GROWTH_MIB = 64
UNREAD_MIB = 128
"""Answers to clients that do not read, and their requests before that."""
TIMES = ("--kafka-request-timeout-ms", "1000")


@pytest.fixture(scope="module")
def server():
    flags = ["--group-initial-rebalance-delay-ms", "0", "--kafka-listen", "127.0.0.1:0", *TIMES]
    with Process(*flags) as server:
        yield server
    troubles = [line for line in server.lines if line["level"] == "error" or "exception" in line]
    assert troubles == []


async def opened(address: str, stack: contextlib.AsyncExitStack):
    return await stack.enter_async_context(connected(address))


async def sent_and_closed(address: str, *messages: bytes) -> None:
    """Each message on a connection of its own, which the server closes without an answer."""
    for message in messages:
        async with connected(address) as client:
            client.send(message)
            assert await client.is_closed()


async def huge_lengths(address: str, stack) -> None:
    """Frames of up to two gigabytes are announced."""
    for size in (MOST_BYTES + 1, 2**30, 2**31 - 1):
        await sent_and_closed(address, *[struct.pack(">i", size) + b"x" * 1_000] * 10)


async def impossible_lengths(address: str, stack) -> None:
    """Negative lengths, and frames that are shorter than any request."""
    for size in (-1, -(2**31), 0, 1, 7):
        await sent_and_closed(address, struct.pack(">i", size) + b"x" * 20)


async def other_protocols(address: str, stack) -> None:
    """TLS, HTTP and gRPC at a port for Kafka in plain text."""
    tls = bytes.fromhex("16030100f8010000f40303") + bytes(240)
    http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    await sent_and_closed(address, tls, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", http2, b"\r\n" * 50)


async def unknown_requests(address: str, stack) -> None:
    """APIs and versions that are not offered, Produce among them."""
    for key, version in ((0, 9), (68, 0), (11, 10), (12, -1), (9_999, 0), (-1, 0)):
        await sent_and_closed(address, frame(struct.pack(">hhih", key, version, 7, -1) + bytes(20)))


async def arrays_that_claim_more(address: str, stack) -> None:
    """Two billion items in arrays, at the top and below."""
    more = struct.pack(">i", 2**31 - 1)
    groups = header_bytes(apis.DESCRIBE_GROUPS, 0) + more
    topics = request(apis.OFFSET_FETCH, 1, group_id="g", topics=[])[:-4] + more
    compact = header_bytes(apis.DESCRIBE_GROUPS, 6) + b"\xff\xff\xff\xff\x0f"
    await sent_and_closed(address, frame(groups), frame(topics), frame(compact))


async def garbage(address: str, stack) -> None:
    """Random bytes, with and without a length that is right."""
    chance = random.Random(1)
    for number in range(100):
        async with connected(address) as client:
            data = chance.randbytes(chance.randrange(20, 5_000))
            client.send(frame(data) if number % 2 else data)
            await client.reader.read(1_000)


async def half_frames(address: str, stack) -> None:
    """300 connections that begin a request and never end it, a few bytes or nearly all of it."""
    data = frame(request(apis.LIST_GROUPS, 4))
    clients = [await opened(address, stack) for _ in range(300)]
    for number, client in enumerate(clients):
        client.send(data[: number % (len(data) - 1)])
    for client in clients:
        assert await client.is_closed()


async def slow_loris(address: str, stack) -> None:
    """100 requests that come byte by byte, and never end in time."""
    data = frame(request(apis.LIST_GROUPS, 4) + bytes(100_000))

    async def drip(client) -> None:
        with contextlib.suppress(OSError):
            for byte in data:
                client.send(bytes([byte]))
                await client.writer.drain()
                await asyncio.sleep(0.05)

    clients = [await opened(address, stack) for _ in range(100)]
    drips = [asyncio.create_task(drip(client)) for client in clients]
    for client in clients:
        assert await client.is_closed()
    for each in drips:
        each.cancel()


async def readers_that_do_not_read(address: str, stack) -> None:
    """Requests one behind the other, whose answers nobody takes, until the server takes no more."""
    groups = [f"group-{number:0200}" for number in range(500)]
    block = frame(request(apis.DESCRIBE_GROUPS, 5, groups=groups))
    for _ in range(5):
        client = await opened(address, stack)
        client.writer.transport.pause_reading()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                while True:
                    client.send(block)
                    await client.writer.drain()


async def hang_ups(address: str, stack) -> None:
    """500 connections that are closed as soon as they have asked."""
    data = frame(request(apis.JOIN_GROUP, 3, **join("storm")))
    for _ in range(500):
        client = await opened(address, contextlib.AsyncExitStack())
        client.send(data)
        client.writer.transport.abort()


async def half_closed(address: str, stack) -> None:
    """Connections whose client will send no more, and waits."""
    for _ in range(50):
        client = await opened(address, stack)
        client.send(frame(request(apis.LIST_GROUPS, 4)))
        client.writer.write_eof()
        await client.reader.read()


def join(group: str) -> dict:
    protocols = [{"name": "range", "metadata": b""}]
    return {
        "group_id": group, "session_timeout": 6_000, "rebalance_timeout": 6_000, "member_id": "",
        "protocol_type": "consumer", "protocols": protocols,
    }  # fmt: skip


class Member:
    """A member that beats again and again, and keeps what it is answered."""

    def __init__(self, client, group: str) -> None:
        self._client, self._group = client, group
        self.beats = 0
        self.failures: list = []

    async def live(self) -> None:
        joined = await self._client.join(self._group, session_timeout=60_000)
        me = {"group_id": self._group, "member_id": joined.member_id, "generation_id": 1}
        synced = await self._client.ask(apis.SYNC_GROUP, 3, **me, assignments=[])
        assert int(synced.error_code) == 0
        while True:
            told = await self._client.ask(apis.HEARTBEAT, **me)
            if int(told.error_code):
                self.failures.append(told)
            self.beats += 1
            await asyncio.sleep(0.05)


ATTACKS = {
    huge_lengths: GROWTH_MIB,
    impossible_lengths: GROWTH_MIB,
    other_protocols: GROWTH_MIB,
    unknown_requests: GROWTH_MIB,
    arrays_that_claim_more: GROWTH_MIB,
    garbage: GROWTH_MIB,
    half_frames: GROWTH_MIB,
    slow_loris: GROWTH_MIB,
    readers_that_do_not_read: UNREAD_MIB,
    hang_ups: GROWTH_MIB,
    half_closed: GROWTH_MIB,
}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_the_server_bears(attack, server):
    async with connected(server.kafka) as client:
        member = Member(client, f"beside {attack.__name__}")
        living = asyncio.create_task(member.live())
        await until(lambda: member.beats or living.done())
        before, most_mib = server.descriptors(), [server.rss_mib()]

        async def watch() -> None:
            while True:
                most_mib.append(server.rss_mib())
                await asyncio.sleep(0.1)

        watching = asyncio.create_task(watch())
        async with asyncio.timeout(HANG_S), contextlib.AsyncExitStack() as stack:
            await attack(server.kafka, stack)
            beats = member.beats
            await until(lambda: member.beats > beats + 1 or living.done())
        await until(lambda: server.descriptors() <= before + SPARE_DESCRIPTORS)
        watching.cancel()
        assert not living.done()
        living.cancel()
        growth_mib = max(most_mib) - most_mib[0]
        print(f"{attack.__name__}: {growth_mib:.0f} MiB, {member.beats} beats")
        assert member.failures == []
        assert growth_mib < ATTACKS[attack]
