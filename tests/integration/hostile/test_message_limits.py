"""Limits of messages at a live server; large requests do not block other callers."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from coordinator.dial import Credentials
from coordinator.runtime import slices
from coordinator.security.tokens import digest_of
from coordinator.v1 import admin_pb2, cluster_pb2, group_pb2, group_pb2_grpc, topics_pb2
from coordinator.v1 import group_pb2 as pb
from tests.kit.serving import running
from tests.unit.service.test_message_limits import LONG, REPEATED, SMALL, with_items, with_text

LIMITS = {
    name: getattr(SMALL, name)
    for name in ("max_partitions_per_call", "max_members_per_call", "max_groups_per_call")
}
MEGABYTE = 1_000_000
METHODS = [
    method
    for file in (group_pb2, admin_pb2, cluster_pb2, topics_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


def methods_of(kind) -> list:
    """The RPCs that take a request; heartbeats of a batch have two."""
    return [m for m in METHODS if m.input_type.full_name == kind.full_name]


async def answer(channel, method, data: bytes, metadata=None):
    """The first answer to raw bytes, or the error."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    try:
        if method.client_streaming:
            return await channel.stream_stream(path)(iter([data]), metadata=metadata).read()
        if method.server_streaming:
            return await channel.unary_stream(path)(data, metadata=metadata).read()
        return await channel.unary_unary(path)(data, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return error


def violated(error: grpc.aio.AioRpcError) -> list[str]:
    """The fields that an error names."""
    trailer = dict(error.trailing_metadata())["grpc-status-details-bin"]
    status = status_pb2.Status.FromString(trailer)
    bad = error_details_pb2.BadRequest()
    assert status.details[0].Unpack(bad)
    return [violation.field for violation in bad.field_violations]


async def test_every_repeated_field_is_refused_beyond_its_limit():
    async with running(**LIMITS) as server, grpc.aio.insecure_channel(server.address) as channel:
        for name, (kind, way) in REPEATED.items():
            for count in (2_000, 900_000 if len(way) == 1 else 2_000):
                data = with_items(kind, way, count).SerializeToString()
                for method in methods_of(kind):
                    error = await answer(channel, method, data)
                    assert isinstance(error, grpc.aio.AioRpcError), name
                    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, name
                    assert violated(error) == [".".join(field.name for field in way)]
        assert all(len(what) < 200 for _, _, what in server.malformed)


async def test_every_text_is_refused_beyond_its_limit():
    async with running() as server, grpc.aio.insecure_channel(server.address) as channel:
        for name, (kind, way, most) in LONG.items():
            letter = "é" if way[-1].type == FieldDescriptor.TYPE_STRING else b"x"
            data = with_text(kind, way, letter * (most + 1)).SerializeToString()
            for method in methods_of(kind):
                error = await answer(channel, method, data)
                assert isinstance(error, grpc.aio.AioRpcError), name
                assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, name
                (field,) = violated(error)
                assert field.replace("[0]", "") == ".".join(field.name for field in way)
        assert all(len(what) < 200 for _, _, what in server.malformed)


async def test_services_of_libraries_take_short_requests_only():
    requests = {
        "/grpc.health.v1.Health/Check": health_pb2.HealthCheckRequest(service="x" * 1_025),
        "/grpc.health.v1.Health/Watch": health_pb2.HealthCheckRequest(service="x" * 1_025),
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": (
            reflection_pb2.ServerReflectionRequest(host="x" * 1_025)
        ),
    }
    methods = {
        f"/{service.full_name}/{method.name}": method
        for file in (health_pb2, reflection_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    async with running() as server, grpc.aio.insecure_channel(server.address) as channel:
        for path, request in requests.items():
            error = await answer(channel, methods[path], request.SerializeToString())
            assert isinstance(error, grpc.aio.AioRpcError), path
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, path
            assert "more than 1024 bytes" in error.details()
        assert len(server.malformed) == 3


@pytest.fixture
def guarded(tmp_path):
    """Settings of a node on which token:team may do everything with groups that begin with x."""
    tokens, rules = tmp_path / "tokens", tmp_path / "rules.toml"
    lines = (f"{name} sha256:{digest_of(name * 32).hex()}\n" for name in ("t", "u"))
    tokens.write_text("".join(lines))
    rules.write_text('[[rule]]\nprincipal = "token:t"\noperations = ["*"]\ngroups = "x*"\n')
    return {"auth_tokens_file": str(tokens), "auth_rules_file": str(rules)}


async def test_who_may_not_make_a_call_is_told_so_in_short_however_long_the_name(guarded):
    long = "x" * MEGABYTE
    requests = [
        pb.FindCoordinatorRequest(group_id=long),
        pb.HeartbeatRequest(group_id=long),
        pb.JoinGroupRequest(group_id=long),
        pb.OffsetCommitRequest(group_id=long),
        pb.HeartbeatBatchRequest(heartbeats=[{"group_id": long}]),
        admin_pb2.DescribeGroupsRequest(groups=[long]),
        admin_pb2.WatchRebalancesRequest(group_ids=[long]),
    ]
    calls = [(request, m) for request in requests for m in methods_of(request.DESCRIPTOR)]
    async with running(**guarded) as server, grpc.aio.insecure_channel(server.address) as channel:
        for request, method in calls:
            for token, code in (
                ("u", grpc.StatusCode.PERMISSION_DENIED),
                ("t", grpc.StatusCode.INVALID_ARGUMENT),
                ("v", grpc.StatusCode.UNAUTHENTICATED),
            ):
                shown = Credentials(token=token * 32).metadata()
                error = await answer(channel, method, request.SerializeToString(), shown)
                assert error.code() is code, (method.name, token)
                assert len(error.details()) < 500
        guard = server.security.guard
        assert sum(len(group or "") for _, _, group in guard._decided) == 0
        assert len(server.refused) == 2 * len(calls)
        assert all(len(str(refusal)) < 1_000 for refusal in server.refused)
        assert all(len(what) < 200 for _, _, what in server.malformed)


async def test_others_are_answered_while_much_is_worked_off(monkeypatch):
    monkeypatch.setattr(slices, "SLICE_S", 0.0)  # Every part is a slice, however fast the machine.
    async with running() as server, grpc.aio.insecure_channel(server.address) as channel:
        stub = group_pb2_grpc.GroupCoordinatorStub(channel)
        partitions = [{"partition_index": n, "committed_offset": n} for n in range(10_000)]
        for topic in range(5):
            commit = pb.OffsetCommitRequest(
                group_id="large", topics=[{"name": f"t{topic}", "partitions": partitions}]
            )
            assert await heartbeats_during(stub, stub.OffsetCommit(commit)) >= 3
        fetch = pb.OffsetFetchRequest(group_id="large")
        call = stub.OffsetFetch(fetch)
        assert await heartbeats_during(stub, call) >= 5
        assert sum(len(topic.partitions) for topic in (await call).topics) == 50_000
        beats = pb.HeartbeatBatchRequest(heartbeats=[{"group_id": "g", "member_id": "m"}] * 20_000)
        assert await heartbeats_during(stub, stub.HeartbeatBatch(beats)) >= 5


async def heartbeats_during(stub, call) -> int:
    """Heartbeats of another group that were answered before the call."""
    task = asyncio.ensure_future(call)
    answered = 0
    while not task.done():
        await stub.Heartbeat(pb.HeartbeatRequest(group_id="another", member_id="m"))
        answered += not task.done()
    await task
    return answered


async def test_a_caller_that_goes_away_in_the_middle_leaves_nothing_half_done(monkeypatch):
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    async with running() as server, grpc.aio.insecure_channel(server.address) as channel:
        stub = group_pb2_grpc.GroupCoordinatorStub(channel)
        partitions = [{"partition_index": n, "committed_offset": n} for n in range(5_000)]
        topics = [{"name": "t", "partitions": partitions}]
        for beats in range(20):
            call = stub.OffsetCommit(pb.OffsetCommitRequest(group_id=f"g{beats}", topics=topics))
            for _ in range(beats):
                await stub.Heartbeat(pb.HeartbeatRequest(group_id="another", member_id="m"))
            call.cancel()
        for beats in range(20):
            fetch = pb.OffsetFetchRequest(group_id=f"g{beats}", require_stable=True)
            stored = sum(len(topic.partitions) for topic in (await stub.OffsetFetch(fetch)).topics)
            assert stored in (0, 5_000)
        assert server.server.pipeline.quotas.parked == 0
