"""Protobuf to commands and back."""

from __future__ import annotations

import itertools

import pytest

from coordinator.core.values.requests import CommitOffsets, FetchOffsets, JoinGroup
from coordinator.service.grpc.translate import commands_of
from coordinator.service.refusals import Malformed
from coordinator.v1 import group_pb2 as pb


def one(request):
    (command,) = commands_of(request, itertools.count(1).__next__, "/host")
    return command


def test_unset_fields_mean_the_newest_behaviour():
    join = one(pb.JoinGroupRequest(group_id="g", session_timeout_ms=9))
    assert isinstance(join, JoinGroup)
    assert join.require_known_member_id
    assert join.supports_skip_assignment
    assert join.rebalance_timeout_ms == 9
    assert join.instance_id is None
    assert join.client_host == "/host"
    commit = one(pb.OffsetCommitRequest(group_id="g", topics=[{"partitions": [{}]}]))
    assert isinstance(commit, CommitOffsets)
    assert commit.generation == -1
    assert (commit.partitions[0].leader_epoch, commit.partitions[0].expected) == (-1, None)


def test_a_fetch_of_no_topics_asks_for_all():
    assert one(pb.OffsetFetchRequest(group_id="g")).partitions is None
    fetch = one(pb.OffsetFetchRequest(group_id="g", topics=[{"name": "t"}]))
    assert isinstance(fetch, FetchOffsets)
    assert fetch.partitions == ()


def test_reasons_are_cut_at_the_length_that_kafka_allows():
    assert len(one(pb.JoinGroupRequest(group_id="g", reason="x" * 999)).reason) == 255


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (pb.JoinGroupRequest(group_id="a\0"), ["group_id"]),
        (pb.JoinGroupRequest(group_id="x" * 5_000), ["group_id"]),
        (pb.JoinGroupRequest(rebalance_timeout_ms=-1), ["rebalance_timeout_ms"]),
        (pb.JoinGroupRequest(protocols=[{"name": ""}]), ["protocols[0].name"]),
        (pb.JoinGroupRequest(protocols=[{"name": f"{n}"} for n in range(101)]), ["protocols"]),
        (pb.SyncGroupRequest(assignments=[{"member_id": "m"}] * 2), ["assignments[1].member_id"]),
        (
            pb.OffsetCommitRequest(topics=[{"name": "t", "partitions": [{"partition_index": -1}]}]),
            ["topics[0].partitions[0].partition_index"],
        ),
        (
            pb.OffsetCommitRequest(
                topics=[
                    {"name": "t", "partitions": [{}]},
                    {
                        "name": "u",
                        "partitions": [{}, {"partition_index": 1, "committed_offset": -1}],
                    },
                ]
            ),
            ["topics[1].partitions[1].committed_offset"],
        ),
        (pb.JoinGroupRequest(group_instance_id=""), ["group_instance_id"]),
        (pb.SyncGroupRequest(group_instance_id=""), ["group_instance_id"]),
        (pb.HeartbeatRequest(group_instance_id=""), ["group_instance_id"]),
        (
            pb.HeartbeatBatchRequest(heartbeats=[{}, {"group_instance_id": ""}]),
            ["heartbeats[1].group_instance_id"],
        ),
        (pb.OffsetCommitRequest(group_instance_id=""), ["group_instance_id"]),
        (pb.ReportLogEndsRequest(group_instance_id=""), ["group_instance_id"]),
        (
            pb.LeaveGroupRequest(members=[{"member_id": "m"}, {"group_instance_id": ""}]),
            ["members[1].group_instance_id"],
        ),
        (
            pb.OffsetCommitRequest(topics=[{"name": "t", "partitions": [{}, {}]}]),
            ["topics[0].partitions[1].partition_index"],
        ),
    ],
)
def test_what_no_client_would_send_is_malformed_and_names_the_field(request_, fields):
    with pytest.raises(Malformed) as refused:
        commands_of(request_, itertools.count(1).__next__, "/host")
    assert [violation.field for violation in refused.value.violations] == fields


def test_every_request_that_carries_an_instance_id_refuses_an_empty_one():
    """The contract is walked by reflection: a request that gets the field later is found."""
    for name, descriptor in requests().items():
        for path, empty in instance_ids(descriptor):
            with pytest.raises(Malformed) as refused:
                commands_of(empty, itertools.count(1).__next__, "/host")
            assert path in [v.field for v in refused.value.violations], name


def requests():
    messages = pb.DESCRIPTOR.message_types_by_name
    return {name: m for name, m in messages.items() if name.endswith("Request")}


def instance_ids(descriptor):
    """A request for each place in which an instance id may stand, with an empty one there."""
    kind = getattr(pb, descriptor.name)
    for field in descriptor.fields:
        if field.name == "group_instance_id":
            yield field.name, kind(group_instance_id="")
        elif field.message_type and "group_instance_id" in field.message_type.fields_by_name:
            yield (
                f"{field.name}[0].group_instance_id",
                kind(**{field.name: [{"group_instance_id": ""}]}),
            )
