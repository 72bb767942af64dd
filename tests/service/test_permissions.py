"""Every RPC has a line that says what it needs, and the line reads the request right."""

from types import SimpleNamespace

import pytest
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from coordinator.security.rules import Operation
from coordinator.service.permissions import PERMISSIONS, hide, lift_limit
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
    assert list(PERMISSIONS[name].groups(request)) == wanted


def test_who_commands_nodes_or_reads_their_logs_needs_admin():
    for name in ("ClusterAdmin/ElectLeaders", "ClusterAdmin/MoveShard", "ClusterAdmin/DrainNode",
                 "ShardReplica/Fetch"):  # fmt: skip
        line = PERMISSIONS[f"/coordinator.v1.{name}"]
        assert line.operations == (Operation.ADMIN,)
        assert list(line.groups(None)) == [None]


def listed(*group_ids, **more):
    return SimpleNamespace(groups=[SimpleNamespace(group_id=g) for g in group_ids], **more)


@pytest.mark.parametrize(
    ("limit", "shown"),
    [(0, ["a-1", "a-2", "a-3"]), (2, ["a-1", "a-2"]), (9, ["a-1", "a-2", "a-3"])],
)
def test_what_is_hidden_counts_neither_for_the_limit_nor_in_the_number(limit, shown):
    request = SimpleNamespace(limit=limit)
    assert lift_limit(request) == limit
    assert request.limit == 0
    response = listed("a-1", "b-1", "a-2", "b-2", "a-3", matching=5)
    hide(response, limit, lambda group: group.startswith("a-"))
    assert [group.group_id for group in response.groups] == shown
    assert response.matching == 3


def test_a_list_without_a_limit_or_a_number_is_cut_all_the_same():
    assert lift_limit(SimpleNamespace()) == 0
    response = listed("a-1", "b-1")
    hide(response, 0, lambda group: group == "b-1")
    assert [group.group_id for group in response.groups] == ["b-1"]
