"""Protobuf to commands and back."""

from __future__ import annotations

import itertools

import pytest

from coordinator.core.commands import CommitOffsets, FetchOffsets, JoinGroup
from coordinator.service.translate import Malformed, commands_of
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
            pb.OffsetCommitRequest(topics=[{"name": "t", "partitions": [{}, {}]}]),
            ["topics[0].partitions[1].partition_index"],
        ),
    ],
)
def test_what_no_client_would_send_is_malformed_and_names_the_field(request_, fields):
    with pytest.raises(Malformed) as refused:
        commands_of(request_, itertools.count(1).__next__, "/host")
    assert [violation.field for violation in refused.value.violations] == fields
