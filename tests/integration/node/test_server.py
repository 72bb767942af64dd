"""The server over real sockets: parked calls, clients that go away, bad input, the end."""

from __future__ import annotations

import asyncio
import signal
import urllib.request

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status

from coordinator.dial import address_of
from coordinator.operator.admin import GroupAdmin
from coordinator.storage.memory import MemoryLog
from coordinator.v1 import admin_pb2, admin_pb2_grpc, group_pb2_grpc
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode
from tests.integration.groups import members
from tests.integration.waiting import until
from tests.kit import requests
from tests.kit.patience import HANG_S
from tests.kit.serving import Process, Running, running


def join(group_id="g", **more) -> pb.JoinGroupRequest:
    """A JoinGroup that is asked to come back with an id."""
    return requests.join(group_id, **{"require_known_member_id": True, **more})


def stub(server):
    channel = grpc.aio.insecure_channel(server.address)
    return channel, group_pb2_grpc.GroupCoordinatorStub(channel)


@pytest.mark.parametrize("setting", ["fd00::1", "[fd00::1]", "node-1"])
async def test_hosts_are_told_without_brackets_and_addresses_with_them(setting):
    async with running(advertised_host=setting, advertised_port=7_400) as server:
        channel, s = stub(server)
        async with channel:
            reply = await s.FindCoordinator(pb.FindCoordinatorRequest(group_id="g"))
        host = setting.strip("[]")
        assert (reply.host, reply.port) == (host, 7_400)
        assert server.server.advertised == address_of(host, 7_400)


async def test_join_sync_beat_leave():
    async with running() as server:
        channel, s = stub(server)
        async with channel:
            reply = await s.FindCoordinator(pb.FindCoordinatorRequest(group_id="g"))
            assert f"{reply.host}:{reply.port}" == server.address
            first = await s.JoinGroup(join())
            assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
            joined = await s.JoinGroup(join(member_id=first.member_id))
            assert (joined.generation_id, joined.leader) == (1, joined.member_id)
            me = joined.member_id
            synced = await s.SyncGroup(requests.sync(joined, assignments={me: b"all"}))
            assert synced.assignment == b"all"
            beat = pb.HeartbeatRequest(group_id="g", generation_id=1, member_id=me)
            assert (await s.Heartbeat(beat)).error_code == ErrorCode.NONE
            stranger = pb.HeartbeatRequest(group_id="g", generation_id=1, member_id="x")
            batch = await s.HeartbeatBatch(pb.HeartbeatBatchRequest(heartbeats=[beat, stranger]))
            codes = [r.error_code for r in batch.heartbeats]
            assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
            left = await s.LeaveGroup(
                pb.LeaveGroupRequest(group_id="g", members=[{"member_id": me}])
            )
            assert left.members[0].error_code == ErrorCode.NONE


async def test_a_client_that_goes_away_is_noticed():
    async with running(group_initial_rebalance_delay_ms=60_000) as server:
        channel, s = stub(server)
        parked = s.JoinGroup(join(require_known_member_id=False))
        await until(lambda: sum(x.parked_joins for x in server.node.stats()) == 1)
        parked.cancel()
        await until(lambda: sum(x.parked_joins for x in server.node.stats()) == 0)
        assert sum(x.members for x in server.node.stats()) == 0
        await channel.close()


async def test_a_burst_of_joins_loses_none():
    """The join phase waits for a member of the generation before, however long the burst takes."""
    patient = {
        "require_known_member_id": False,
        "session_timeout_ms": 600_000,
        "rebalance_timeout_ms": 600_000,
    }

    async def joined(s) -> pb.JoinGroupResponse:
        while True:
            try:
                return await s.JoinGroup(join(**patient))
            except grpc.aio.AioRpcError as error:
                # gRPC drops calls that have waited for too long, on a slow machine.
                if error.code() is not grpc.StatusCode.CANCELLED:
                    raise

    async with running() as server:
        channel, s = stub(server)
        async with channel:
            me = (await joined(s)).member_id
            await s.SyncGroup(pb.SyncGroupRequest(group_id="g", generation_id=1, member_id=me))
            burst = [asyncio.ensure_future(joined(s)) for _ in range(3_000)]
            await until(lambda: sum(x.parked_joins for x in server.node.stats()) == 3_000)
            last = await s.JoinGroup(join(member_id=me, **patient))
            answers = [last, *await asyncio.gather(*burst)]
        assert {a.error_code for a in answers} == {ErrorCode.NONE}
        assert len({a.member_id for a in answers}) == 3_001
        assert {a.generation_id for a in answers} == {2}
        assert sum(len(a.members) for a in answers) == 3_001  # The leader's alone.


async def test_malformed_requests_name_their_fields_and_disturb_nobody():
    async with running() as server:
        channel, s = stub(server)
        async with channel:
            other = asyncio.ensure_future(s.JoinGroup(join("other", require_known_member_id=False)))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await s.JoinGroup(
                    join("g\0", session_timeout_ms=-5, protocols=[{"name": "a"}, {"name": "a"}])
                )
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            fields = fields_of(refused.value)
            assert fields == ["group_id", "session_timeout_ms", "protocols[1].name"]
            assert len(server.malformed) == 1
            assert (await other).error_code == ErrorCode.NONE


def fields_of(refused: grpc.aio.AioRpcError) -> list[str]:
    detail = error_details_pb2.BadRequest()
    assert rpc_status.from_call(refused).details[0].Unpack(detail)
    return [violation.field for violation in detail.field_violations]


async def test_health_and_reflection():
    async with running() as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for service in ("", "coordinator.v1.GroupCoordinator", "coordinator.v1.GroupAdmin"):
                answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
            reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
            request = reflection_pb2.ServerReflectionRequest(list_services="")
            async for answer in reflection.ServerReflectionInfo(iter([request])):
                names = {s.name for s in answer.list_services_response.service}
            assert "coordinator.v1.GroupCoordinator" in names


async def test_groups_of_all_shards_are_listed():
    async with running() as server:
        channel, s = stub(server)
        async with channel:
            names = [f"group-{n}" for n in range(40)]
            for name in names:
                await s.JoinGroup(join(name))
            listed = await admin_pb2_grpc.GroupAdminStub(channel).ListGroups(
                admin_pb2.ListGroupsRequest(states_filter=["empty"])
            )
            assert [g.group_id for g in listed.groups] == sorted(names)


async def test_a_broken_shard_answers_and_comes_back(monkeypatch):
    from coordinator.core.classic import liveness

    monkeypatch.setattr("coordinator.shard.bugs.BACKOFF_MS", 10)
    server = None
    try:
        async with running() as server:
            channel, s = stub(server)
            async with channel:
                joined = await s.JoinGroup(join(require_known_member_id=False))
                beat = pb.HeartbeatRequest(
                    group_id="g", generation_id=1, member_id=joined.member_id
                )
                with monkeypatch.context() as broken:
                    broken.setattr(liveness, "identify", lambda *_: 1 / 0)
                    answer = await s.Heartbeat(beat)
                assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
                await until(lambda: server.node.is_loaded("g"))
                assert (await s.JoinGroup(join())).error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert len(server.failures) == 1
            server.failures.clear()
    finally:
        assert server is not None


def test_a_process_drains_on_sigterm_and_answers_parked_calls():
    with Process("--group-initial-rebalance-delay-ms", "60000") as server:
        with grpc.insecure_channel(server.address) as channel:
            s = group_pb2_grpc.GroupCoordinatorStub(channel)
            parked = s.JoinGroup.future(
                join(require_known_member_id=False, session_timeout_ms=6_000), timeout=HANG_S
            )
            with GroupAdmin(server.address) as admin:
                while admin.describe_group("g").group_state != "PreparingRebalance":
                    pass
            s.HeartbeatBatch(pb.HeartbeatBatchRequest(heartbeats=[pb.HeartbeatRequest()] * 64))
            with urllib.request.urlopen(server.metrics) as page:
                text = page.read().decode()
            assert "coordinator_heartbeats_total 64.0" in text
            assert "coordinator_heartbeat_seconds_count 1.0" in text
            assert 'coordinator_grpc_calls_total{code="OK",method="HeartbeatBatch"} 1.0' in text
            assert 'coordinator_grpc_calls_total{code="OK",method="Heartbeat"} 0.0' in text
            assert 'coordinator_groups{state="preparing_rebalance"} 1.0' in text
            assert 'coordinator_parked_calls{kind="join"} 1.0' in text
            server.signal(signal.SIGTERM)
            assert parked.result().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert server.wait() == 0
        assert server.lines[-1]["event"] == "stopped"


async def test_a_clean_stop_logs_no_warning(tmp_path):
    """Members of both kinds are there, and hear of it."""
    with Process("--data-dir", str(tmp_path)) as server:
        async with (
            members([server.address], 2, protocol="classic"),
            members([server.address], 2, protocol="session", prefix="session"),
        ):
            server.signal(signal.SIGTERM)
            assert await asyncio.to_thread(server.wait) == 0
    assert server.lines[-1]["event"] == "stopped"
    assert [line for line in server.lines if line["level"] != "info"] == []


async def each_answer(s) -> dict[str, str]:
    """Error of each kind of call, by its name."""
    commit = {"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}
    delete = {"name": "t", "partitions": [{"partition_index": 0}]}
    codes = {}
    for name, answer in {
        "JoinGroup": await s.JoinGroup(join()),
        "SyncGroup": await s.SyncGroup(pb.SyncGroupRequest(group_id="g", member_id="m")),
        "Heartbeat": await s.Heartbeat(pb.HeartbeatRequest(group_id="g", member_id="m")),
        "LeaveGroup": await s.LeaveGroup(
            pb.LeaveGroupRequest(group_id="g", members=[{"member_id": "m"}])
        ),
        "OffsetFetch": await s.OffsetFetch(pb.OffsetFetchRequest(group_id="g")),
    }.items():
        codes[name] = ErrorCode.Name(answer.error_code)
    committed = await s.OffsetCommit(pb.OffsetCommitRequest(group_id="g", topics=[commit]))
    codes["OffsetCommit"] = ErrorCode.Name(committed.topics[0].partitions[0].error_code)
    described = await s.DescribeGroups(admin_pb2.DescribeGroupsRequest(groups=["g"]))
    codes["DescribeGroups"] = ErrorCode.Name(described.groups[0].error_code)
    deleted = await s.DeleteGroups(admin_pb2.DeleteGroupsRequest(groups_names=["g"]))
    codes["DeleteGroups"] = ErrorCode.Name(deleted.results[0].error_code)
    request = admin_pb2.OffsetDeleteRequest(group_id="g", topics=[delete])
    codes["OffsetDelete"] = ErrorCode.Name((await s.OffsetDelete(request)).error_code)
    listed = await s.ListGroups(admin_pb2.ListGroupsRequest())
    codes["ListGroups"] = ErrorCode.Name(listed.error_code)
    return codes


class BothStubs:
    """The calls of both services."""

    def __init__(self, channel) -> None:
        self._stubs = (
            group_pb2_grpc.GroupCoordinatorStub(channel),
            admin_pb2_grpc.GroupAdminStub(channel),
        )

    def __getattr__(self, name: str):
        return next(getattr(stub, name) for stub in self._stubs if hasattr(stub, name))


class SlowLog(MemoryLog):
    """Loads when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_load = asyncio.Event()

    async def load(self, fence, after=0):
        await self.may_load.wait()
        return self.load_now(fence)


async def test_161_before_the_start_and_while_loading_everybody_is_told():
    log = SlowLog()
    server = Running(log=log)
    await server.server.listen()
    async with grpc.aio.insecure_channel(server.address) as channel:
        stubs = BothStubs(channel)
        assert set((await each_answer(stubs)).values()) == {"COORDINATOR_NOT_AVAILABLE"}
        loading = asyncio.create_task(server.server.load())
        await asyncio.sleep(0)
        answers = await each_answer(stubs)
        assert answers.pop("Heartbeat") == "NONE"  # Healthy members are not disturbed.
        assert answers.pop("SyncGroup") == "REBALANCE_IN_PROGRESS"
        assert set(answers.values()) == {"COORDINATOR_LOAD_IN_PROGRESS"}
        health = health_pb2_grpc.HealthStub(channel)
        check = health_pb2.HealthCheckRequest()
        assert (await health.Check(check)).status == health_pb2.HealthCheckResponse.NOT_SERVING
        log.may_load.set()
        await loading
        assert (await health.Check(check)).status == health_pb2.HealthCheckResponse.SERVING
        first = await stubs.JoinGroup(join())
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    await server.server.stop()
