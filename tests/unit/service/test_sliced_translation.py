"""Large requests and replies are translated in slices, so that other calls run in between."""

from __future__ import annotations

import itertools

import pytest

from coordinator.core.values import replies as r
from coordinator.core.values.ids import CallId
from coordinator.core.values.records import OffsetCommitted
from coordinator.core.values.requests import DescribeGroup, LeaveGroup
from coordinator.runtime.slices import at_once
from coordinator.service.grpc.translate import (
    commands_of,
    response_of,
    response_work,
    sessions,
    translation,
)
from coordinator.service.grpc.translate.sessions import MemberStream
from coordinator.service.refusals import Malformed
from coordinator.v1 import admin_pb2, group_pb2, session_pb2
from coordinator.v1 import group_pb2 as pb

MANY = 2_000


def parts_of(work) -> int:
    return sum(1 for _ in work)


def commands(request):
    return commands_of(request, itertools.count(1).__next__, "/host")


def test_a_commit_becomes_one_command_in_parts():
    partitions = [{"partition_index": n} for n in range(MANY)]
    request = pb.OffsetCommitRequest(group_id="g", topics=[{"name": "t", "partitions": partitions}])
    assert parts_of(translation(request, itertools.count(1).__next__, "/h")) >= MANY // 100
    (command,) = commands(request)
    assert len(command.partitions) == MANY


def test_those_who_leave_do_so_some_at_a_time_and_are_answered_together():
    members = [{"member_id": f"m{n}"} for n in range(250)]
    request = pb.LeaveGroupRequest(group_id="g", members=members)
    translated = commands(request)
    assert all(isinstance(command, LeaveGroup) for command in translated)
    assert [len(command.members) for command in translated] == [100, 100, 50]
    assert len(commands(pb.LeaveGroupRequest(group_id="g"))) == 1
    replies = [
        r.LeaveReply(
            members=tuple(r.LeaveResult(m.member_id, None, r.NONE) for m in command.members)
        )
        for command in translated
    ]
    response = response_of(request, replies)
    assert [m.member_id for m in response.members] == [f"m{n}" for n in range(250)]


HELD = [
    session_pb2.HeldTopic(name="t", partitions=[session_pb2.PartitionRange(last=MANY - 1)]),
    session_pb2.HeldTopic(name="u", partitions=[session_pb2.PartitionRange()] * MANY),
]
SESSION_MESSAGES = {
    "ack": session_pb2.SessionRequest(
        ack={"partitions": [{"topic": "t", "partition": n, "kind": "READY"} for n in range(MANY)]}
    ),
    "heartbeat": session_pb2.SessionRequest(heartbeat={"held": {"topics": HELD}}),
    "heartbeat with loads": session_pb2.SessionRequest(
        heartbeat={"loads": [{"topic": "t", "partition": n} for n in range(MANY)]}
    ),
    "attach": session_pb2.SessionRequest(attach=session_pb2.Attach(held=HELD)),
}


@pytest.mark.parametrize("message", SESSION_MESSAGES.values(), ids=SESSION_MESSAGES)
def test_what_a_session_member_says_is_checked_and_translated_in_parts(message):
    stream = MemberStream(CallId(1), "/host")
    work = stream.attach(message, "") if message.HasField("attach") else stream.receive(message)
    assert parts_of(work) >= MANY // 100


def test_acknowledgements_are_several_commands_in_their_order(monkeypatch):
    monkeypatch.setattr(sessions, "ACKS", 700)
    acks = at_once(MemberStream(CallId(1), "/host").receive(SESSION_MESSAGES["ack"]))
    assert [len(ack.partitions) for ack in acks] == [700, 700, 600]
    assert [partition.partition for ack in acks for partition in ack.partitions] == [*range(MANY)]


def test_a_group_named_often_is_described_once():
    translated = commands(admin_pb2.DescribeGroupsRequest(groups=["g", "h", "g"]))
    assert [command.group_id for command in translated if isinstance(command, DescribeGroup)] == [
        "g",
        "h",
    ]


def test_all_offsets_of_a_group_are_sorted_and_answered_in_parts():
    stored = tuple(OffsetCommitted("g", f"t{n % 7}", n, n, -1, "", 1, None) for n in range(9_000))
    request, replies = group_pb2.OffsetFetchRequest(), [r.FetchReply(offsets=stored[::-1])]
    assert parts_of(response_work(request, replies)) >= len(stored) // 100
    response = at_once(response_work(request, replies))
    found = [(t.name, p.partition_index) for t in response.topics for p in t.partitions]
    assert found == sorted((record.topic, record.partition) for record in stored)


@pytest.mark.parametrize(
    ("request_", "replies"),
    [
        (
            pb.JoinGroupRequest(),
            [r.JoinReply(members=(r.JoinedMember("m", None, b""),) * MANY)],
        ),
        (pb.OffsetCommitRequest(), [r.CommitReply((r.CommitResult("t", 0, r.NONE),) * MANY)]),
        (
            pb.OffsetFetchRequest(topics=[{}]),
            [r.FetchReply(offsets=(r.FetchedOffset("t", 1),) * MANY)],
        ),
        (
            admin_pb2.ListGroupsRequest(),
            [r.ListReply(groups=(r.GroupListing("g", "t", "Empty"),) * MANY)],
        ),
        (
            admin_pb2.DescribeGroupsRequest(),
            [r.DescribeReply("g", members=(r.DescribedMember("m", None, "", ""),) * MANY)],
        ),
        (
            admin_pb2.OffsetDeleteRequest(),
            [r.OffsetDeleteReply(results=(r.CommitResult("t", 0, r.NONE),) * MANY)],
        ),
        (
            admin_pb2.ListLogEndsRequest(),
            [r.ListLogEndsReply(ends=(r.LogEnd("t", 0, 0, 0),) * MANY)],
        ),
        (
            admin_pb2.DescribePhaseRequest(),
            [r.PhaseReply(awaited=(r.AwaitedMember("m"),) * MANY)],
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_large_response_is_made_in_parts(request_, replies):
    assert parts_of(response_work(request_, replies)) >= MANY // 100


def test_a_long_name_is_not_told_again():
    name = "x" * 200
    for request in (
        pb.JoinGroupRequest(protocols=[{"name": name}, {"name": name}]),
        pb.SyncGroupRequest(assignments=[{"member_id": name}, {"member_id": name}]),
    ):
        with pytest.raises(Malformed) as error:
            commands(request)
        assert name not in str(error.value)
