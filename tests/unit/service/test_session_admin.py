"""Operators' requests about session groups, over real gRPC."""

from __future__ import annotations

import pytest

from coordinator.assignors.consumer_protocol import partitions_in
from coordinator.v1 import admin_pb2 as pb
from coordinator.v1 import admin_pb2_grpc, session_pb2
from coordinator.v1.errors_pb2 import ErrorCode
from tests.kit.session_stream import POLICY, Stream
from tests.unit.service.test_session_streams import channel  # noqa: F401  # A fixture.


@pytest.fixture
def admin(channel):  # noqa: F811
    return admin_pb2_grpc.GroupAdminStub(channel)


async def attached(channel, name: str, incarnation: bytes = b"1" * 16) -> Stream:  # noqa: F811
    stream = Stream(channel)
    await stream.attach(name, incarnation)
    await stream.next("orders")
    return stream


async def test_a_session_group_is_described_over_the_wire(channel, admin):  # noqa: F811
    stream = await attached(channel, "w-a")
    told = await admin.DescribeSessionGroup(pb.DescribeSessionGroupRequest(group_id="g"))
    assert (told.error_code, told.group_state) == (ErrorCode.NONE, "Stable")
    [member] = told.members
    assert (member.member_name, member.lease_ms, member.partition_count) == (
        "w-a",
        POLICY.lease_ms,
        3,
    )
    assert member.standing == session_pb2.Attached.MEMBER
    assert member.incarnation.id == b"1" * 4  # Too little to attach with.
    [topic] = told.topics
    [holding] = topic.holdings
    assert (holding.partitions.first, holding.partitions.last) == (0, 2)
    assert holding.partitions.first_token > 0
    assert told.policy.lease_ms == POLICY.lease_ms
    assert told.policy.drain_timeout_ms == 30_000
    assert not told.policy.HasField("initial_delay_ms") or told.policy.initial_delay_ms == 0
    described = (await admin.DescribeGroups(pb.DescribeGroupsRequest(groups=["g"]))).groups[0]
    assert (described.group_type, described.protocol_type) == ("Session", "consumer")
    assert len(partitions_in(described.members[0].member_assignment)) == 3
    listed = await admin.ListGroups(pb.ListGroupsRequest(types_filter=["session"]))
    assert [group.group_type for group in listed.groups] == ["Session"]
    stream.call.cancel()
