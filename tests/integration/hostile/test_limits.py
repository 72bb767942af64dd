"""Limits over real sockets: what is refused, how clients hear of it, and who does not notice."""

from __future__ import annotations

import asyncio
import contextlib
import time

import grpc
import pytest

from coordinator.assignors import TopicPartition
from coordinator.client import FatalError, Member
from coordinator.client.transport.wire import retry_after_of
from coordinator.security.tokens import digest_of
from coordinator.v1 import admin_pb2, admin_pb2_grpc, group_pb2_grpc
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode
from tests.integration.waiting import until
from tests.kit.patience import HANG_S
from tests.kit.requests import join
from tests.kit.serving import Process, running


@contextlib.asynccontextmanager
async def calling(address: str):
    async with grpc.aio.insecure_channel(address) as channel:
        yield group_pb2_grpc.GroupCoordinatorStub(channel)


async def refused(call) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    return error.value


async def test_a_refusal_names_the_setting_and_says_when_to_try_again():
    async with running(max_groups=1) as server, calling(server.address) as s:
        await s.JoinGroup(join("first"))
        error = await refused(s.JoinGroup(join("second")))
        assert "max_groups" in error.details()
        assert retry_after_of(error) == pytest.approx(1.0, abs=0.1)
        assert server.server.pipeline.calls["JoinGroup", "RESOURCE_EXHAUSTED"] == 1
        too_long = join("first", protocols=[{"name": "range", "metadata": bytes(2_000_000)}])
        error = await refused(s.JoinGroup(too_long))
        assert "max_member_metadata_bytes" in error.details()
        assert retry_after_of(error) is None, "it would be refused again"


async def test_parked_calls_and_streams_have_so_many_places():
    async with running(
        max_parked_calls=2, max_streams=1, group_initial_rebalance_delay_ms=60_000
    ) as server, calling(server.address) as s:  # fmt: skip
        parked = [asyncio.ensure_future(s.JoinGroup(join("g"))) for _ in range(2)]
        await until(lambda: server.server.pipeline.quotas.parked == 2)
        assert "max_parked_calls" in (await refused(s.JoinGroup(join("h")))).details()
        for call in parked:
            call.cancel()
        await until(lambda: server.server.pipeline.quotas.parked == 0)
        async with grpc.aio.insecure_channel(server.address) as channel:
            watch = admin_pb2_grpc.GroupAdminStub(channel).WatchRebalances
            for _ in range(2):
                stream = watch(admin_pb2.WatchRebalancesRequest())
                await until(lambda: server.server.pipeline.quotas.streams == 1)
                second = watch(admin_pb2.WatchRebalancesRequest())
                assert "max_streams" in (await refused(second.read())).details()
                stream.cancel()
                await until(lambda: server.server.pipeline.quotas.streams == 0)


async def test_a_member_waits_for_room_and_gets_it():
    async with running(max_members_per_host=1) as server:
        async with Member(server.address, "a", {"t": 1}) as first:
            async with asyncio.timeout(HANG_S):
                while not first.assignment:
                    await first.poll(timeout=1)
            second = Member(server.address, "b", {"t": 1})
            async with second:
                await second.poll(timeout=1.5)
                assert not second.assignment
                assert server.server.pipeline.calls["JoinGroup", "RESOURCE_EXHAUSTED"] >= 1
                await first.close()
                async with asyncio.timeout(HANG_S):
                    while not second.assignment:
                        await second.poll(timeout=1)
                await second.commit({TopicPartition("t", 0): 1})


async def test_a_member_that_will_never_fit_is_told_so():
    async with running(max_member_metadata_bytes=1_024) as server:
        topics = {f"a-topic-with-a-long-name-{n}": 1 for n in range(100)}
        async with Member(server.address, "a", topics) as member:
            with pytest.raises(FatalError, match="max_member_metadata_bytes"):
                await _poll_for_ever(member)


async def _poll_for_ever(member: Member) -> None:
    while True:
        await member.poll(timeout=1)


RATE = 60
CONNECTIONS, UNDER_WAY = 4, 100
BEATS = 40


async def test_one_tenant_s_storm_leaves_another_s_beats_alone(tmp_path):
    """Both come from this machine, so that their tokens alone tell them apart."""
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(
        f"{name} sha256:{digest_of(name * 8).hex()}\n" for name in ("storm", "calm")
    ))  # fmt: skip
    with Process(
        "--auth-tokens-file", str(tokens), "--max-requests-per-second", str(RATE),
        "--console-listen", "", "--group-initial-rebalance-delay-ms", "0",
    ) as server:  # fmt: skip
        async with calling(server.address) as calm, contextlib.AsyncExitStack() as stack:
            who = (("authorization", f"Bearer {'calm' * 8}"),)
            patient = {"session_timeout_ms": 300_000}
            joined = await calm.JoinGroup(join("calm", **patient), metadata=who)
            beat = pb.HeartbeatRequest(
                group_id="calm", generation_id=joined.generation_id, member_id=joined.member_id
            )
            storms = [
                await stack.enter_async_context(calling(server.address)) for _ in range(CONNECTIONS)
            ]
            began = time.monotonic()
            storm = Storm()
            running_storm = asyncio.gather(*(
                storm.blow(stub) for stub in storms for _ in range(UNDER_WAY)
            ))  # fmt: skip
            # More are under way than are served or wait within a second, on any machine.
            await until(lambda: storm.turned_away)
            answered_meanwhile = []
            for _ in range(BEATS):
                before = storm.served + storm.turned_away
                answer = await calm.Heartbeat(beat, metadata=who)
                assert answer.error_code == ErrorCode.NONE
                answered_meanwhile.append(storm.served + storm.turned_away - before)
                await asyncio.sleep(0.02)
            storm.is_over = True
            await running_storm
            lasted_s = time.monotonic() - began
    assert storm.served <= RATE * (lasted_s + 2), "its rate, and what it had saved up or waits for"
    # Were the beats in one line with the storm, all that is under way would be answered before
    # each. Some see more than their share where the test itself is kept from running.
    ordered = sorted(answered_meanwhile)
    assert ordered[BEATS // 4] < CONNECTIONS * UNDER_WAY / 4


class Storm:
    """Calls until it is over, and how many of them were served or refused so far."""

    def __init__(self) -> None:
        self.served = self.turned_away = 0
        self.is_over = False

    async def blow(self, stub) -> None:
        who = (("authorization", f"Bearer {'storm' * 8}"),)
        while not self.is_over:
            try:
                await stub.JoinGroup(join("storm", member_id="nobody"), metadata=who)
                self.served += 1
            except grpc.aio.AioRpcError as error:
                if retry_after_of(error) is None:
                    raise  # It was not for want of room.
                self.turned_away += 1


async def test_requests_of_an_address_are_limited_where_nobody_says_who_he_is():
    rate, calls = 5, 100
    async with running(max_requests_per_second=rate) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            admin = admin_pb2_grpc.GroupAdminStub(channel)
            began = time.monotonic()
            answers = await asyncio.gather(
                *(admin.ListGroups(admin_pb2.ListGroupsRequest()) for _ in range(calls)),
                return_exceptions=True,
            )
            lasted_s = time.monotonic() - began
        turned_away = [error for error in answers if isinstance(error, grpc.aio.AioRpcError)]
        served = calls - len(turned_away)
        assert turned_away, "a hundred calls do not take a machine twenty seconds"
        assert served >= rate, "a second's worth at once, and whoever waited for room"
        assert served <= rate * (1 + lasted_s) + 1, "on a slow machine, more seconds pass"
        assert all(retry_after_of(error) for error in turned_away)
