"""Every RPC has a line that says what it needs, and the line reads the request right."""

import pytest
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from coordinator.security.rules import Operation
from coordinator.service.permissions import PERMISSIONS
from coordinator.v1 import admin_pb2, cluster_pb2, group_pb2, replica_pb2

FILES = [admin_pb2, cluster_pb2, group_pb2, replica_pb2, health_pb2, reflection_pb2]


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
    assert names - set(PERMISSIONS) == set()
    assert set(PERMISSIONS) - names - optional == set()


def test_only_health_is_open():
    assert {name for name, line in PERMISSIONS.items() if line.is_open} == {
        f"/grpc.health.v1.Health/{name}" for name in ("Check", "List", "Watch")
    }


@pytest.mark.parametrize(
    ("name", "method"), [(n, m) for n, m in served() if "coordinator" in n], ids=str
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
    assert list(PERMISSIONS[name].groups(request)) == wanted


def test_who_commands_nodes_or_reads_their_logs_needs_admin():
    for name in ("ClusterAdmin/ElectLeaders", "ClusterAdmin/MoveShard", "ClusterAdmin/DrainNode",
                 "ShardReplica/Fetch"):  # fmt: skip
        line = PERMISSIONS[f"/coordinator.v1.{name}"]
        assert line.operations == (Operation.ADMIN,)
        assert list(line.groups(None)) == [None]
