"""Every RPC has a line that says which call it is, and the line reads the request right."""

import asyncio
import contextlib
from types import SimpleNamespace

import grpc
import pytest
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from coordinator.security.rules import Operation
from coordinator.service.grpc.calls import METHODS, client_host, method_of
from coordinator.service.grpc.checked_server import CheckedServer
from coordinator.service.latency import Latency
from coordinator.service.refusals import GaveUp
from coordinator.settings import Settings
from coordinator.v1 import admin_pb2, cluster_pb2, group_pb2, replica_pb2, session_pb2, topics_pb2
from coordinator.v1 import group_pb2 as pb

FILES = [
    admin_pb2, cluster_pb2, group_pb2, replica_pb2, session_pb2, topics_pb2, health_pb2,
    reflection_pb2,
]  # fmt: skip


def served():
    for file in FILES:
        descriptor = descriptor_pool.Default().FindFileByName(file.DESCRIPTOR.name)
        for service in descriptor.services_by_name.values():
            for method in service.methods:
                yield f"/{service.full_name}/{method.name}", method


def test_every_rpc_has_a_line_and_every_line_an_rpc():
    # Older packages of health have no List yet.
    optional = {"/grpc.health.v1.Health/List"}
    names = {name for name, _ in served()}
    assert len(names) > 20
    assert names - set(METHODS) == set()
    assert set(METHODS) - names - optional == set()


def test_only_health_is_open():
    assert {name for name, line in METHODS.items() if line.kind.is_open} == {
        f"/grpc.health.v1.Health/{name}" for name in ("Check", "List", "Watch")
    }


@pytest.mark.parametrize(
    ("name", "method"), [pytest.param(n, m, id=n) for n, m in served() if "coordinator" in n]
)
def test_a_line_finds_the_groups_of_its_request(name, method):
    from google.protobuf.message_factory import GetMessageClass

    request = GetMessageClass(method.input_type)()
    fields = {field.name for field in method.input_type.fields}
    wanted = [None]
    if "group_id" in fields:
        request.group_id = "g"
        wanted = ["g"]
    for repeated in ("groups", "groups_names", "group_ids"):
        if repeated in fields:
            getattr(request, repeated).extend(["g", "h"])
            wanted = ["g", "h"]
    if "heartbeats" in fields:
        request.heartbeats.add(group_id="g")
        request.heartbeats.add(group_id="h")
        wanted = ["g", "h"]
    if "attach" in fields:
        request.attach.group_id = "g"
        wanted = ["g"]
    if "topic" in fields:
        wanted = ["__coordinator_topics"]
    assert list(METHODS[name].groups(request)) == wanted


def test_a_line_counts_its_rpc_under_its_own_name():
    assert all(name.rpartition("/")[2] == line.kind.name for name, line in METHODS.items())


def test_an_rpc_without_a_line_is_closed():
    assert method_of("/coordinator.v1.GroupCoordinator/Unheard").kind.is_closed
    assert not any(line.kind.is_closed for line in METHODS.values())


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:127.0.0.1:5000", "/127.0.0.1"),
        ("ipv6:[::1]:5000", "/::1"),
        ("unix:/run/x", "/unix:/run/x"),
    ],
)
def test_a_host_is_what_kafka_s_tools_print(peer, host):
    assert client_host(peer) == host


def test_who_commands_nodes_or_reads_their_logs_needs_admin():
    for name in ("ClusterAdmin/ElectLeaders", "ClusterAdmin/MoveShard", "ClusterAdmin/DrainNode",
                 "ShardReplica/Fetch", "TopicReplica/FetchTopics",
                 "TopicReplica/FetchLogEnds"):  # fmt: skip
        line = METHODS[f"/coordinator.v1.{name}"]
        assert line.kind.operations == (Operation.ADMIN,)
        assert list(line.groups(None)) == [None]


def test_who_changes_topics_needs_admin_and_anybody_may_see_them():
    for name in ("SetTopic", "DeleteTopic"):
        line = METHODS[f"/coordinator.v1.TopicAdmin/{name}"]
        assert line.kind.operations == (Operation.ADMIN,)
        assert list(line.groups(None)) == ["__coordinator_topics"]
    line = METHODS["/coordinator.v1.TopicAdmin/ListTopics"]
    assert (line.kind.operations, line.kind.is_open) == ((), False)


class Reflecting(grpc.GenericRpcHandler):
    """A handler that knows one method."""

    def service(self, details):
        if not details.method.endswith("/Known"):
            return None
        return grpc.unary_unary_rpc_method_handler(
            print, pb.HeartbeatRequest.FromString, pb.HeartbeatResponse.SerializeToString
        )


@pytest.mark.parametrize(("name", "is_refused"), [("Known", True), ("Unknown", False)])
def test_too_much_metadata_is_counted_only_for_methods_that_exist(name, is_refused):
    """Names of methods that do not exist have no end, and each would be counted by itself."""
    handlers: list[grpc.GenericRpcHandler] = []
    plain = SimpleNamespace(add_generic_rpc_handlers=handlers.extend)
    settings = Settings.of(max_metadata_bytes=1_024)
    pipeline = SimpleNamespace(
        node=SimpleNamespace(settings=settings), admits_all=True, latency=lambda kind: Latency()
    )
    CheckedServer(plain, pipeline).add_generic_rpc_handlers([Reflecting()])
    details = SimpleNamespace(method=f"/x/{name}", invocation_metadata=[("a", "x" * 2_000)])
    handler = handlers[0].service(details)
    assert (handler is not None) == is_refused


class Answering(grpc.GenericRpcHandler):
    """A handler of every method, which ends as it is told."""

    def __init__(self, end: BaseException | None) -> None:
        self._end = end

    def service(self, details):
        async def answer(request, call):
            if self._end is not None:
                raise self._end

        return grpc.unary_unary_rpc_method_handler(
            answer, pb.HeartbeatRequest.FromString, pb.HeartbeatResponse.SerializeToString
        )


class Aborting:
    """gRPC's context, of which nothing but the end is needed."""

    async def abort(self, *_) -> None:
        raise grpc.aio.AbortError


@pytest.mark.parametrize("end", [None, GaveUp("x"), asyncio.CancelledError()])
def test_a_call_is_measured_once_however_it_ends(end):
    latencies = measured("JoinGroup", end)
    assert [sum(latency.counts) for latency in latencies] == [1]


@pytest.mark.parametrize("name", ["Heartbeat", "HeartbeatBatch"])
def test_the_transport_measures_no_heartbeat(name):
    assert measured(name, None) == []


def measured(name: str, end: BaseException | None) -> list[Latency]:
    latencies: dict[str, Latency] = {}
    pipeline = SimpleNamespace(
        node=SimpleNamespace(settings=Settings.of()),
        admits_all=True,
        latency=lambda kind: latencies.setdefault(kind.name, Latency()),
        refused=lambda call, error: None,
    )
    handlers: list[grpc.GenericRpcHandler] = []
    plain = SimpleNamespace(add_generic_rpc_handlers=handlers.extend)
    CheckedServer(plain, pipeline).add_generic_rpc_handlers([Answering(end)])
    method = f"/coordinator.v1.GroupCoordinator/{name}"
    handler = handlers[0].service(SimpleNamespace(method=method, invocation_metadata=[]))

    async def call() -> None:
        with contextlib.suppress(grpc.aio.AbortError, asyncio.CancelledError):
            await handler.unary_unary(pb.HeartbeatRequest(), Aborting())

    asyncio.run(call())
    return list(latencies.values())
