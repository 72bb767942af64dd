"""The listener's sockets: options that only a real one shows."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from coordinator.kafka.apis import API_VERSIONS
from coordinator.service.kafka.listener import AWAY_MAX
from tests.kit.kafka.messages import frame, request
from tests.unit.service.kafka_wire import node


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "*", "0.0.0.0"])
async def test_answers_are_not_held_back_for_acknowledgements(host):
    """Nagle's algorithm holds the second of two pipelined answers for a delayed ACK: 40 ms."""
    settings = {"kafka_listen": f"{host}:0", "kafka_advertise": "here:0"}
    async with node(**settings) as server:
        port = await server.listener.listen()
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        while not server.listener.connections:  # noqa: ASYNC110  # Nothing tells of it.
            await asyncio.sleep(0)
        (connection,) = server.listener._connections
        accepted = connection._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        writer.close()
        await server.listener.context.topics.close()


async def test_connections_of_one_address_that_are_turned_away_shut_nobody_else_out():
    settings = {"kafka_listen": "0.0.0.0:0", "kafka_advertise": "here:0"}
    async with node(**settings, kafka_max_connections_per_address=1) as server:
        port = await server.listener.listen()
        ended = server.listener.traffic.ended
        with contextlib.ExitStack() as silent:
            for number in range(AWAY_MAX + 2):
                one = socket.create_connection(("127.0.0.1", port))
                silent.enter_context(one)
                while server.listener.connections + sum(ended.values()) <= number:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            source = ("127.0.0.2", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=source)
            writer.write(frame(request(API_VERSIONS, 0, 7)))
            size = int.from_bytes(await reader.readexactly(4), "big")
            assert (await reader.readexactly(size))[:6] == bytes([0, 0, 0, 7, 0, 0])
            writer.close()
        await server.listener.context.topics.close()
