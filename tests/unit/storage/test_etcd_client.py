"""The client of etcd when endpoints, played by servers of this process, do not answer."""

from __future__ import annotations

import asyncio
import contextlib

import grpc
import pytest

from coordinator.storage.access import StoreAccess
from coordinator.storage.etcd_api import rpc_pb2 as pb
from coordinator.storage.etcd_api import rpc_pb2_grpc
from coordinator.storage.etcd_client import EtcdClient
from coordinator.storage.log import Ambiguous, LogUnavailable
from tests.kit.patience import HANG_S

pytestmark = pytest.mark.integration
NEVER_S = 3_600.0
"""The time that a call has: who waited for its end would wait for ever."""


class Endpoint(rpc_pb2_grpc.KVServicer):
    """Answers as it is told: with a revision, with a status, or not at all."""

    def __init__(self) -> None:
        self.answer: int | grpc.StatusCode | None = None
        self.calls = 0
        self.asked = asyncio.Event()
        self.released = asyncio.Event()

    async def Range(self, request, context):  # Its name on the wire.
        self.calls += 1
        self.asked.set()
        if self.answer is None:
            await self.released.wait()
        if isinstance(self.answer, grpc.StatusCode):
            await context.abort(self.answer, "as it was told")
        return pb.RangeResponse(header=pb.ResponseHeader(revision=self.answer))

    async def Txn(self, request, context):
        response = await self.Range(request, context)
        return pb.TxnResponse(header=response.header)


@contextlib.asynccontextmanager
async def endpoints(count: int, *, silence_s: float = 0.05):
    """They, and a client of all of them that calls a silence what is one for a test."""
    some, servers, addresses = [Endpoint() for _ in range(count)], [], []
    for endpoint in some:
        server = grpc.aio.server()
        rpc_pb2_grpc.add_KVServicer_to_server(endpoint, server)
        addresses.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        await server.start()
        servers.append(server)
    client = EtcdClient(StoreAccess(tuple(addresses)), call_timeout_s=NEVER_S)
    client._silence_s = silence_s
    try:
        async with asyncio.timeout(HANG_S):
            yield client, some
    finally:
        await client.close()
        for server in servers:
            await server.stop(None)


ASK = [
    pytest.param(lambda client: client.range(pb.RangeRequest(key=b"k")), id="read"),
    pytest.param(lambda client: client.resolvable(pb.TxnRequest()), id="resolvable write"),
]


@pytest.mark.parametrize("ask", ASK)
async def test_an_endpoint_that_says_nothing_is_not_waited_for(ask):
    async with endpoints(3) as (client, (silent, other, _)):
        other.answer = 7
        assert (await ask(client)).header.revision == 7
        asked = silent.calls
        assert asked >= 1
        client._silence_s = NEVER_S
        assert (await ask(client)).header.revision == 7
        assert silent.calls == asked, "the one that has answered is asked from now on"


@pytest.mark.parametrize("ask", ASK)
async def test_the_answer_of_the_first_endpoint_still_counts_when_another_is_asked(ask):
    async with endpoints(2) as (client, (slow, silent)):
        asking = asyncio.create_task(ask(client))
        await silent.asked.wait()
        slow.answer = 3
        slow.released.set()
        assert (await asking).header.revision == 3


async def test_a_store_that_recovers_is_asked_again_by_the_same_call():
    async with endpoints(2) as (client, (one, two)):
        asking = asyncio.create_task(client.range(pb.RangeRequest(key=b"k")))
        await two.asked.wait()
        one.answer = two.answer = 5
        assert (await asking).header.revision == 5, "what hung hangs; what comes later does not"


async def test_a_slow_call_is_sent_once_while_others_are_answered():
    """A store that has too much to do is not given more."""
    async with endpoints(1, silence_s=NEVER_S) as (client, (endpoint,)):
        asking = asyncio.create_task(client.resolvable(pb.TxnRequest()))
        await endpoint.asked.wait()
        client._silence_s = 0.0
        client._answered_at = float("inf")  # Somebody always has just been answered.
        endpoint.answer = 1
        for _ in range(20):
            await client.range(pb.RangeRequest(key=b"k"))
            client._answered_at = float("inf")
        assert endpoint.calls == 1 + 20
        asking.cancel()


async def test_a_write_is_in_doubt_if_any_endpoint_may_have_carried_it_out():
    async with endpoints(2, silence_s=NEVER_S) as (client, (one, two)):
        one.answer = grpc.StatusCode.DEADLINE_EXCEEDED
        two.answer = grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(Ambiguous):
            await client.resolvable(pb.TxnRequest())
        assert (one.calls, two.calls) == (1, 1), "a refusal is the last word"
        with pytest.raises(LogUnavailable):
            await client.resolvable(pb.TxnRequest())


async def test_a_write_that_can_not_be_resolved_is_sent_once():
    async with endpoints(2) as (client, (silent, other)):
        silent.answer, other.answer = grpc.StatusCode.DEADLINE_EXCEEDED, 1
        with pytest.raises(Ambiguous):
            await client.txn(pb.TxnRequest())
        assert (silent.calls, other.calls) == (1, 0)
