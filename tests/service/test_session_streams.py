"""Streams of session members, over real gRPC."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from coordinator.v1 import errors_pb2
from coordinator.v1 import session_pb2 as pb
from tests.service.session_client import POLICY, Stream, orders
from tests.serving import running


@pytest.fixture
async def channel():
    async with running() as server, grpc.aio.insecure_channel(server.address) as channel:
        yield channel


async def test_partitions_are_pushed_and_handed_over(channel):
    a, b = Stream(channel), Stream(channel)
    attached = await a.attach("w-a", b"1" * 16)
    assert attached.lease_ms == POLICY.lease_ms
    assert attached.heartbeat_interval_ms == POLICY.lease_ms // 4
    assert attached.wanted.why == "window"
    granted = (await a.next("wanted")).wanted
    assert orders(granted) == {0: "ACTIVE", 1: "ACTIVE", 2: "ACTIVE"}
    await b.attach("w-b", b"2" * 16)
    draining = (await a.next("wanted")).wanted
    [(partition, order)] = orders(draining).items()
    assert order == "DRAIN"
    each = draining.topics[0].ranges[0]
    ack = pb.SessionAck.Partition(
        topic="t", partition=partition, kind=pb.SessionAck.RELEASED,
        token=each.partitions.first_token, handoff_id=each.handoff_id,
    )  # fmt: skip
    await a.call.write(pb.SessionRequest(ack=pb.SessionAck(partitions=[ack])))
    assert orders((await b.next("wanted")).wanted) == {partition: "ACTIVE"}
    await a.beat(1)
    assert (await a.next("heartbeat_ack")).heartbeat_ack.number == 1
    await a.call.write(pb.SessionRequest(leave=pb.SessionLeave()))
    assert (await a.next("go_away")).go_away.reason == pb.GoAway.LEFT
    rest = orders((await b.next("wanted")).wanted)
    assert len(rest) == 2


async def test_a_newer_stream_supersedes(channel):
    old, new = Stream(channel), Stream(channel)
    await old.attach("w-a", b"1" * 16)
    await old.next("wanted")
    held = pb.HeldTopic(name="t", partitions=[pb.PartitionRange(first=0, last=2, first_token=1)])
    again = await new.attach("w-a", b"1" * 16, 2, held=[held])
    assert (await old.next("go_away")).go_away.reason == pb.GoAway.SUPERSEDED
    assert len(orders(again.wanted)) == 3


async def test_a_stream_begins_with_an_attach(channel):
    stream = Stream(channel)
    await stream.beat(1)
    refused = (await stream.next("refused")).refused
    assert refused.error_code == errors_pb2.INVALID_REQUEST
    assert await stream.code() is grpc.StatusCode.OK


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
        await deaf.next("wanted")  # All topics are its own: a whole state takes 100 kB.
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
