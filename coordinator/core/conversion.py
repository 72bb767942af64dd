"""Rules that concern both kinds of groups: a group without members becomes one of the other kind.

It becomes a session group with the first Attach, and a classic one with the first JoinGroup. It
keeps offsets, manifest, documents, ends of logs and policy.
"""

from __future__ import annotations

from coordinator.core import admin
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.sessions import policies
from coordinator.core.sessions.arrive import attach
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.step import Step
from coordinator.core.values.errors import ErrorCode, MustWait, Refuse
from coordinator.core.values.requests import DeleteGroup, JoinGroup, SetGroupPolicy
from coordinator.core.values.session_messages import Attach

IS_CLASSIC = Refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group is classic")
IS_OF_SESSIONS = Refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group is one of sessions")


def check_attach(group: ClassicGroup, command: Attach, step: Step) -> None:
    """Check that a classic group may become one of sessions, with its first member.

    Raises:
        Refused: INCONSISTENT_GROUP_PROTOCOL: it has members, or had some and is to be kept; and
            what `attach.check` refuses.
        MustWait: an assignment of it is being written.
    """
    attach.check(None, command, step)
    group.check_alive()
    if group.is_writing_assignment:
        raise MustWait(step.now_ms + step.config.offset_commit_timeout_ms)
    _check_unused(group)
    if command.keep_classic and group.protocol_type is not None:
        raise IS_CLASSIC.refused


def check_join(group: SessionGroup, _: JoinGroup, step: Step) -> None:
    """Check that a session group may become a classic one, with its first member.

    Raises:
        Refused: INCONSISTENT_GROUP_PROTOCOL: it has members, or partitions are reserved.
        MustWait: a member's admission is being written.
    """
    _check_nobody_arrives(group, step)
    if not group.has_no_members or group.written_partitions:
        raise IS_OF_SESSIONS.refused


def delete_session_group(group: SessionGroup, command: DeleteGroup, step: Step) -> None:
    """Delete a session group without members.

    Raises:
        Refused: see `admin.delete_group`.
        MustWait: a member's admission is being written.
    """
    _check_nobody_arrives(group, step)
    admin.delete_group(group, command, step)


def set_policy_of_classic(group: ClassicGroup, command: SetGroupPolicy, step: Step) -> None:
    """Set the policy of an Empty classic group, which counts once it is one of sessions.

    Raises:
        Refused: INCONSISTENT_GROUP_PROTOCOL: it has members; and what `set_policy` refuses.
    """
    _check_unused(group)
    policies.set_policy(group, command, step)


def _check_unused(group: ClassicGroup) -> None:
    if group.member_count or group.generation < 0:
        raise IS_CLASSIC.refused


def _check_nobody_arrives(group: SessionGroup, step: Step) -> None:
    if group.arriving:
        raise MustWait(step.now_ms + step.config.offset_commit_timeout_ms)
