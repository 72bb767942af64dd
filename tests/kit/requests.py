"""Requests of the contract with what most tests do not care for: `join("g", client_id="c")`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from coordinator.assignors import TopicPartition
from coordinator.assignors.consumer_protocol import Assignment, encode_assignment
from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import session_pb2

AT_ONCE = session_pb2.GroupPolicy(join_quiet_ms=0, initial_delay_ms=0)
"""Policy of a session group that plans as soon as somebody comes."""


def join(group_id: str = "g", **fields: Any) -> pb.JoinGroupRequest:
    """A JoinGroup of a consumer that may come without an id."""
    defaults: dict[str, Any] = {
        "session_timeout_ms": 60_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range"}],
        "require_known_member_id": False,
    }
    return pb.JoinGroupRequest(group_id=group_id, **{**defaults, **fields})


def sync(
    joined: pb.JoinGroupResponse,
    group_id: str = "g",
    assignments: Mapping[str, bytes] | None = None,
    **fields: Any,
) -> pb.SyncGroupRequest:
    """The SyncGroup that follows an answered JoinGroup.

    Args:
        assignments: by member id; empty but from the leader.
    """
    return pb.SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[
            {"member_id": member_id, "assignment": assignment}
            for member_id, assignment in (assignments or {}).items()
        ],
        **fields,
    )


def attach(
    name: str = "w-a", group_id: str = "g", number: int = 1, partitions: int = 4, **fields: Any
) -> session_pb2.SessionRequest:
    """An Attach of a process that has its member's name for an id.

    Args:
        number: of the stream.
        partitions: of topic t.
    """
    defaults: dict[str, Any] = {
        "member_name": name,
        "incarnation": {"id": name.encode()},
        "topics": [{"name": "t", "partitions": partitions}],
        "wishes": AT_ONCE,
    }
    message = session_pb2.Attach(group_id=group_id, stream_number=number, **{**defaults, **fields})
    return session_pb2.SessionRequest(attach=message)


def assignment(topic: str, partitions: Collection[int]) -> bytes:
    """What a consumer's leader writes for a member that is to have partitions of one topic."""
    return encode_assignment(Assignment(tuple(TopicPartition(topic, n) for n in partitions)))
