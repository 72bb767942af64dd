"""A call that has ended is gone: reference counting frees it, and the collector finds nothing.

What only the collector frees lives on for as long as its objects are frozen, see
`coordinator.runtime.garbage`; strangers could fill a node with their requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from coordinator.kafka import apis
from coordinator.runtime.garbage import MANY, ShortPauses
from coordinator.security.tokens import line_for, new_token
from coordinator.service.calls import Call, CallingPeer
from coordinator.service.kafka.connection import KafkaConnection
from coordinator.v1 import admin_pb2, admin_pb2_grpc, group_pb2_grpc, session_pb2_grpc
from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import session_pb2 as sb
from coordinator.web.connection import HttpConnection
from coordinator.web.server import Page
from tests.integration.waiting import until
from tests.kit import requests
from tests.kit.kafka.client import connected
from tests.kit.kafka.messages import frame, request
from tests.kit.serving import running

CALLS = 20
SPARE = 2
"""Objects of the call that ended last, which gRPC may keep until the next."""
LONG = "g" * 9_999
ROUNDS = 4
SPARE_OBJECTS = 200
"""A tenth of what the calls of a round would leave if one object of each stayed."""
PARKED_S = 0.05


def joining(group_id: str, **more) -> pb.JoinGroupRequest:
    return requests.join(group_id, session_timeout_ms=6_000, **more)


# --- gRPC ---


async def a_heartbeat(channel) -> None:
    await group_pb2_grpc.GroupCoordinatorStub(channel).Heartbeat(pb.HeartbeatRequest(group_id="g"))


async def a_join_that_names_no_group(channel) -> None:
    await group_pb2_grpc.GroupCoordinatorStub(channel).JoinGroup(joining(""))


async def a_join_with_an_id_that_is_too_long(channel) -> None:
    await group_pb2_grpc.GroupCoordinatorStub(channel).JoinGroup(joining(LONG))


async def a_heartbeat_with_an_id_that_is_too_long(channel) -> None:
    request = pb.HeartbeatRequest(group_id=LONG)
    await group_pb2_grpc.GroupCoordinatorStub(channel).Heartbeat(request)


async def a_join_that_is_given_up(channel) -> None:
    request = joining("parked", require_known_member_id=False)
    await group_pb2_grpc.GroupCoordinatorStub(channel).JoinGroup(request, timeout=PARKED_S)


async def bytes_that_are_no_message(channel) -> None:
    await channel.unary_unary("/coordinator.v1.GroupCoordinator/JoinGroup")(b"\xff\xff\xff")


async def more_metadata_than_allowed(channel) -> None:
    stub = group_pb2_grpc.GroupCoordinatorStub(channel)
    metadata = [(f"x-{number}", "x" * 1_000) for number in range(10)]
    await stub.Heartbeat(pb.HeartbeatRequest(group_id="g"), metadata=metadata)


async def health_of_no_service(channel) -> None:
    request = health_pb2.HealthCheckRequest(service="none")
    await health_pb2_grpc.HealthStub(channel).Check(request)


async def reflection(channel) -> None:
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    await (
        reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([asked])).read()
    )


async def a_session_without_attach(channel) -> None:
    stream = session_pb2_grpc.GroupSessionsStub(channel).Session()
    await stream.write(sb.SessionRequest())
    await stream.read()


async def a_watch_that_is_given_up(channel) -> None:
    stub = admin_pb2_grpc.GroupAdminStub(channel)
    await stub.WatchRebalances(admin_pb2.WatchRebalancesRequest(), timeout=PARKED_S).read()


GRPC = (
    a_heartbeat,
    a_join_that_names_no_group,
    a_join_with_an_id_that_is_too_long,
    a_heartbeat_with_an_id_that_is_too_long,
    a_join_that_is_given_up,
    bytes_that_are_no_message,
    more_metadata_than_allowed,
    health_of_no_service,
    reflection,
    a_session_without_attach,
    a_watch_that_is_given_up,
)


# --- Kafka ---


async def a_list_of_versions(client) -> None:
    await client.ask(apis.API_VERSIONS, 0)


async def random_bytes(client) -> None:
    client.send(frame(b"\xff" * 40))
    await client.is_closed()


async def half_a_request(client) -> None:
    client.send(frame(request(apis.LIST_GROUPS, 4))[:-2])


async def a_request_that_cannot_be_decoded(client) -> None:
    client.send(frame(request(apis.LIST_GROUPS, 4)[:-1]))
    await client.is_closed()


async def a_group_id_that_is_too_long(client) -> None:
    client.send(frame(request(apis.DELETE_GROUPS, 0, 1, groups_names=[LONG])))
    await client.reader.read(1_000)


async def a_token_that_is_wrong(client) -> None:
    await client.plain("wrong")


async def a_hang_up(client) -> None:
    pass


KAFKA = (
    a_list_of_versions,
    random_bytes,
    half_a_request,
    a_request_that_cannot_be_decoded,
    a_group_id_that_is_too_long,
    a_token_that_is_wrong,
    a_hang_up,
)


# --- What is left ---


@pytest.fixture(params=["open", "guarded"])
def settings(request, tmp_path) -> dict[str, object]:
    tokens = tmp_path / "tokens"
    tokens.write_text(line_for("etl", new_token()) + "\n")
    guarded = {"auth_tokens_file": str(tokens)} if request.param == "guarded" else {}
    return {"kafka_listen": "127.0.0.1:0", **guarded}


@pytest.fixture(autouse=True)
def _as_it_was():
    yield
    gc.enable()


def left() -> int:
    """Objects of calls and connections that are alive, gRPC's own among them."""
    return sum(
        isinstance(
            live, Call | CallingPeer | KafkaConnection | HttpConnection | grpc.aio.AbortError
        )
        or type(live).__name__ == "_ServicerContext"
        for live in gc.get_objects()
    )


async def nothing_is_left_of(again) -> None:
    gc.disable()  # Loading has enabled it.
    before = left()
    for _ in range(CALLS):
        with contextlib.suppress(grpc.aio.AioRpcError, AssertionError):
            await again()
    await until(lambda: left() <= before + SPARE)


@pytest.mark.parametrize("act", GRPC, ids=lambda act: act.__name__)
async def test_nothing_is_left_of_a_call(act, settings):
    async with running(**settings) as server, grpc.aio.insecure_channel(server.address) as channel:
        await nothing_is_left_of(lambda: act(channel))


@pytest.mark.parametrize("act", KAFKA, ids=lambda act: act.__name__)
async def test_nothing_is_left_of_a_connection(act, settings):
    async def connect() -> None:
        async with connected(server.kafka) as client:
            with contextlib.suppress(OSError, EOFError):
                await act(client)

    async with running(**settings) as server:
        await nothing_is_left_of(connect)


def objects() -> int:
    gc.collect()
    return len(gc.get_objects()) + gc.get_freeze_count()


async def test_calls_that_were_under_way_while_objects_were_frozen_are_freed(settings):
    """A soak: as many objects are alive after the last round as after the second."""

    async def call(act) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            await act(channel)

    async def freeze() -> None:
        while True:
            kept = [[] for _ in range(MANY)]
            gc.collect()
            await asyncio.sleep(0.001)
            del kept

    with ShortPauses() as pauses:
        pauses.attach()
        async with (
            running(**settings) as server,
            grpc.aio.insecure_channel(server.address) as channel,
        ):
            alive = []
            for _ in range(ROUNDS):
                freezing = asyncio.create_task(freeze())
                for _ in range(CALLS):
                    await asyncio.gather(*map(call, GRPC))
                freezing.cancel()
                await until(lambda: left() <= SPARE)
                for told in (server.events, server.malformed, server.refused):
                    told.clear()
                alive.append(objects())
            assert alive[-1] <= alive[1] + SPARE_OBJECTS, alive


async def test_nothing_is_left_of_a_browser_that_speaks_no_http():
    page = Page("page", ("127.0.0.1", 0), lambda _: None)
    address = page.url.removeprefix("http://").strip("/")

    async def connect() -> None:
        async with connected(address) as client:
            client.send(b"\xff\xff\r\n\r\n")
            await client.is_closed()

    try:
        await nothing_is_left_of(connect)
    finally:
        page.close()
