"""Requests as the core takes them, with what most tests do not care for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from coordinator.core.values.ids import CallId
from coordinator.core.values.replies import JoinReply
from coordinator.core.values.requests import CommitOffsets, JoinGroup, PartitionCommit, SyncGroup


def join(call_id: int, group_id: str = "g", **fields: Any) -> JoinGroup:
    """A JoinGroup of a member that may come without an id."""
    defaults: dict[str, Any] = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": (("range", b""),),
        "client_host": "/h",
        "require_known_member_id": False,
    }
    return JoinGroup(call_id=CallId(call_id), group_id=group_id, **{**defaults, **fields})


def sync(
    call_id: int,
    joined: JoinReply,
    group_id: str = "g",
    assignments: Mapping[str, bytes] | None = None,
    **fields: Any,
) -> SyncGroup:
    """The SyncGroup that follows an answered JoinGroup; by default it assigns its member `all`."""
    if assignments is None:
        assignments = {joined.member_id: b"all"}
    return SyncGroup(
        call_id=CallId(call_id),
        group_id=group_id,
        generation=joined.generation,
        member_id=joined.member_id,
        assignments=tuple(assignments.items()),
        **fields,
    )


def commit(
    call_id: int,
    offset: int,
    group_id: str = "g",
    partitions: Iterable[tuple[str, int]] = (("t", 0),),
    *,
    expected: int | None = None,
    **fields: Any,
) -> CommitOffsets:
    """A commit of one offset for some partitions, of no member unless `fields` name one."""
    commits = (PartitionCommit(*partition, offset, expected=expected) for partition in partitions)
    return CommitOffsets(
        call_id=CallId(call_id), group_id=group_id, partitions=tuple(commits), **fields
    )
