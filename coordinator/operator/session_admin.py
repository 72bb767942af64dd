"""Blocking calls of operators about session groups, and what calls about groups share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from coordinator.operator.nodes import Nodes
from coordinator.v1 import admin_pb2 as pb
from coordinator.v1 import admin_pb2_grpc, session_pb2

SessionGroup = pb.DescribeSessionGroupResponse
GroupPolicy = session_pb2.GroupPolicy
SessionHandoff = pb.SessionHandoff
WAITING = session_pb2.Attached.WAITING
"""`standing` of a process that waits for the name of a member."""


class GroupNotFound(LookupError):
    """There is no such group."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"Consumer group '{group_id}' does not exist.")
        self.group_id = group_id


class SessionGroupAdmin(Nodes):
    """Queries and changes of session groups, a part of `GroupAdmin`."""

    def describe_session_group(self, group_id: str) -> SessionGroup:
        """A session group as it is now: members, holders with tokens, open hand-offs, policy.

        Raises:
            GroupNotFound: there is no such group.
            LookupError: the group is classic, or it is being loaded.
        """
        request = pb.DescribeSessionGroupRequest(group_id=group_id)
        return self._request(self._admin(group_id).DescribeSessionGroup, request)

    def set_group_policy(
        self, group_id: str, changes: GroupPolicy, defaults: Collection[str] = ()
    ) -> GroupPolicy:
        """Change some settings of a session group, or of one that is to come.

        Args:
            changes: settings that are set in it are changed, the others stay.
            defaults: names of settings that get their defaults.
        Returns:
            The policy in force from now on.
        Raises:
            LookupError: a value is out of bounds, or the group is classic.
        """
        request = pb.SetGroupPolicyRequest(group_id=group_id, policy=changes, defaults=defaults)
        return self._request(self._admin(group_id).SetGroupPolicy, request).policy

    def evict_member(
        self,
        group_id: str,
        *,
        member_id: str = "",
        member_name: str = "",
        gone: bool = False,
        dry_run: bool = False,
    ) -> pb.EvictMemberResponse:
        """Take everything from a member of a session group, and end its session.

        Its partitions are free as it releases them, a lease later at the latest. A process that
        still runs may attach again.

        Args:
            member_id, member_name: one of the two; a name may be a reserved one.
            gone: you vouch that the process has ended: all is free at once.
            dry_run: change nothing, and say what would be taken.
        Raises:
            GroupNotFound: there is no such group.
            LookupError: it has no such member, or is classic.
        """
        request = pb.EvictMemberRequest(
            group_id=group_id,
            member_id=member_id,
            member_name=member_name,
            gone=gone,
            dry_run=dry_run,
        )
        return self._request(self._admin(group_id).EvictMember, request)

    def _admin(self, group_id: str) -> admin_pb2_grpc.GroupAdminStub:
        return admin_pb2_grpc.GroupAdminStub(self.channel(self.coordinator_of(group_id)))

    def _refusal(self, request: Any, message: str, code: str) -> LookupError:
        # Any: a request that names a group.
        if code == "GROUP_ID_NOT_FOUND":
            return GroupNotFound(request.group_id)
        return LookupError(f"Group '{request.group_id}' refuses: {message}.")


def status(member: SessionGroup.Member) -> str:
    """A member's state in a word or two; the most important one of several."""
    states = (
        (member.standing == WAITING, "waiting"),
        (member.evicted, "evicted"),
        (member.suspect, "suspect"),
        (member.leaving, "leaving"),
        (member.stalled, "stalled"),
        (member.overloaded, "overloaded"),
        (not member.ready, "not ready"),
    )
    return next((word for is_so, word in states if is_so), "active")


def free_of(described: SessionGroup) -> dict[str, int]:
    """Number of partitions that nobody holds, by the code of why."""
    free = Counter[str]()
    for row in (free for topic in described.topics for free in topic.free):
        free[row.why] += row.partitions.last - row.partitions.first + 1
    return free


def mode_of(policy: GroupPolicy) -> str:
    """The mode of hand-offs: simple, warm or copy."""
    return GroupPolicy.Mode.Name(policy.mode).lower()
