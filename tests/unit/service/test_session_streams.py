"""Streams of session members, over real gRPC."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from coordinator.v1 import session_pb2 as pb
from tests.kit.serving import running
from tests.kit.session_stream import Stream


@pytest.fixture
async def channel():
    async with running() as server, grpc.aio.insecure_channel(server.address) as channel:
        yield channel


async def test_a_member_that_reads_nothing_costs_one_message_and_hears_why_at_last():
    """Nothing more fits into the connection, whose window is small."""
    narrow = [("grpc.http2.lookahead_bytes", 16_384), ("grpc.http2.bdp_probe", 0)]
    topics = [pb.Attach.Topic(name=f"{n:0>200}", partitions=1) for n in range(500)]
    async with (
        running() as server,
        grpc.aio.insecure_channel(server.address, narrow) as one,
        grpc.aio.insecure_channel(server.address) as other,
    ):
        deaf = Stream(one)
        await deaf.attach("w-a", b"1" * 16, topics=topics)
        await deaf.next("orders")  # All topics are its own: a whole state takes 100 kB.
        for number in range(1, 50):
            await deaf.beat(number, whole=True)
        newer = Stream(other)
        await newer.attach("w-a", b"1" * 16, 2, topics=topics)
        assert len(server.node.runner_of("g")._streams) == 1
        assert (await deaf.next("go_away")).go_away.reason == pb.GoAway.SUPERSEDED
        assert len(deaf.seen) < 50, "one message for many heartbeats"
        assert await deaf.code() is grpc.StatusCode.OK


async def test_a_node_that_stops_says_so_and_ends_its_streams():
    async with running() as server, grpc.aio.insecure_channel(server.address) as channel:
        stream = Stream(channel)
        await stream.attach("w-a", b"1" * 16)
        stopping = asyncio.create_task(server.server.stop())
        assert (await stream.next("go_away")).go_away.reason == pb.GoAway.SHUTTING_DOWN
        assert await stream.code() is grpc.StatusCode.OK
        await stopping
