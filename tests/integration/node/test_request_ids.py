"""A client finds its call in the log by the id that it sent, and nobody else's lines have it."""

from __future__ import annotations

import grpc
import pytest

from coordinator.client import Member
from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc
from tests.integration.waiting import until
from tests.kit import requests
from tests.kit.serving import Process


def lines(server: Process, event: str) -> list[dict]:
    return [line for line in server.lines if line["event"] == event]


def refusals(line: dict) -> int:
    return line.get("refused", 1)


async def test_what_is_logged_of_a_call_has_its_id():
    with Process("--group-initial-rebalance-delay-ms", "0") as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = group_pb2_grpc.GroupCoordinatorStub(channel)
            malformed = pb.JoinGroupRequest(group_id="g" * 10_000)
            for call_id in ("mine-0", None, "mine-1"):
                metadata = () if call_id is None else (("x-request-id", call_id),)
                with pytest.raises(grpc.aio.AioRpcError):
                    await stub.JoinGroup(malformed, metadata=metadata)
        await until(lambda: sum(map(refusals, lines(server, "request_refused"))) == 3)
        warnings = lines(server, "request_refused")  # Those that follow in a second are one line.
        assert (warnings[0]["request_id"], warnings[-1]["request_id"]) == ("mine-0", "mine-1")


async def test_members_send_ids():
    with Process("--group-initial-rebalance-delay-ms", "0", "--log-level", "debug") as server:
        async with Member(server.address, "g", {"t": 1}) as member:
            while not member.assignment:
                await member.poll(timeout=1)
            await until(lambda: lines(server, "member_joined"))
        (joined,) = lines(server, "member_joined")
        assert joined["request_id"].partition("-")[2].isdigit()


async def test_what_time_and_the_log_do_is_nobody_s_call():
    flags = (
        "--group-initial-rebalance-delay-ms", "0", "--group-min-session-timeout-ms", "3000",
        "--log-level", "debug",
    )  # fmt: skip
    with Process(*flags) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = group_pb2_grpc.GroupCoordinatorStub(channel)
            who = (("x-request-id", "mine"),)
            joined = await stub.JoinGroup(
                requests.join(session_timeout_ms=3_000, protocol_type="t"),
                metadata=who,
            )
            await stub.SyncGroup(
                requests.sync(joined),
                metadata=who,
            )
            await until(lambda: lines(server, "member_evicted"))
        assert lines(server, "member_joined")[0]["request_id"] == "mine"
        assert "request_id" not in lines(server, "rebalance_completed")[0]
        assert "request_id" not in lines(server, "member_evicted")[0]
