"""Requests of GroupCoordinator and GroupAdmin: protobuf, then commands; and messages of session
members, played to a coordinator on virtual time.

The first byte chooses the request.
"""

from itertools import count

from google.protobuf.message import DecodeError, Message

from coordinator.core.errors import ErrorCode, Refused
from coordinator.service.grpc import translate
from coordinator.service.grpc.translate.responses import _OF_SEVERAL, _RESPONSES
from coordinator.service.refusals import Malformed
from coordinator.v1 import admin_pb2, group_pb2, session_pb2
from tests.fuzz import session_messages

KINDS: list[type[Message]] = sorted([*_RESPONSES, *_OF_SEVERAL], key=lambda kind: kind.__name__)
KINDS.append(session_pb2.SessionRequest)  # The last one: kept inputs name kinds by their number.
BEAT = {"group_id": "g", "generation_id": 3, "member_id": "m", "group_instance_id": "i"}


def target(data: bytes) -> None:
    if not data:
        return
    kind = KINDS[data[0] % len(KINDS)]
    try:
        request = kind.FromString(data[1:])
    except DecodeError:
        return
    if isinstance(request, session_pb2.SessionRequest):
        session_messages.play(request)
        return
    calls = count(1)
    try:
        commands = translate.commands_of(request, calls.__next__, "/127.0.0.1")
    except Malformed:
        return
    if not commands:
        return
    # The refusal of each command must be a response to the request.
    refused = Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    response = translate.response_of(request, [command.refusal(refused) for command in commands])
    assert type(response).FromString(response.SerializeToString()) == response


def seeds():
    for request in (
        group_pb2.FindCoordinatorRequest(group_id="g"),
        group_pb2.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id="m",
            group_instance_id="i",
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b"\0\1"}, {"name": "sticky"}],
            reason="because",
            client_id="c",
            require_known_member_id=False,
            supports_skip_assignment=False,
        ),
        group_pb2.SyncGroupRequest(
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": "m", "assignment": b"\0\0"}, {"member_id": "n"}],
            **BEAT,
        ),
        group_pb2.HeartbeatRequest(**BEAT),
        group_pb2.HeartbeatBatchRequest(heartbeats=[BEAT, BEAT]),
        group_pb2.LeaveGroupRequest(
            group_id="g", members=[{"member_id": "m", "group_instance_id": "i", "reason": "r"}]
        ),
        group_pb2.OffsetCommitRequest(
            topics=[
                {
                    "name": "t",
                    "partitions": [
                        {
                            "partition_index": 1,
                            "committed_offset": 2**40,
                            "committed_leader_epoch": 3,
                            "committed_metadata": "x",
                            "expected_committed_offset": -1,
                        },
                        {"partition_index": 2},
                    ],
                }
            ],
            atomic=True,
            manifest=b"m",
            **BEAT,
        ),
        group_pb2.OffsetFetchRequest(
            group_id="g", topics=[{"name": "t", "partition_indexes": [0, 1]}], require_stable=True
        ),
        group_pb2.ReportLogEndsRequest(
            topics=[{"name": "t", "partitions": [{"partition_index": 1, "log_end_offset": 9}]}],
            **BEAT,
        ),
        admin_pb2.ListGroupsRequest(states_filter=["stable"], types_filter=["classic"]),
        admin_pb2.DescribeGroupsRequest(groups=["g", "h"]),
        admin_pb2.DeleteGroupsRequest(groups_names=["g", "h"]),
        admin_pb2.RemoveMembersRequest(
            group_id="g", members=[{"member_id": "m"}, {"group_instance_id": "i"}], reason="r"
        ),
        admin_pb2.OffsetDeleteRequest(
            group_id="g", topics=[{"name": "t", "partitions": [{"partition_index": 1}]}]
        ),
        admin_pb2.ListLogEndsRequest(group_id="g"),
        admin_pb2.ListRebalancesRequest(group_id="g", limit=3),
        admin_pb2.DescribePhaseRequest(group_id="g"),
        admin_pb2.DescribeSessionGroupRequest(group_id="g"),
        admin_pb2.SetGroupPolicyRequest(
            group_id="g", policy={"lease_ms": 3_000, "mode": "COPY"}, defaults=["max_idle_ms"]
        ),
        admin_pb2.EvictMemberRequest(group_id="g", member_name="w-a", gone=True),
        *session_messages.seeds(),
    ):
        yield bytes([KINDS.index(type(request))]) + request.SerializeToString()
