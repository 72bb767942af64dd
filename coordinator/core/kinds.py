"""Rules by which groups are made by requests of session groups, change their kind, and go.

A group without members becomes one of the other kind: a classic one with the first Attach, one of
sessions with the first JoinGroup. It keeps offsets, manifest, ends of logs and policy.
"""

from __future__ import annotations

from coordinator.core import admin, admission, offsets
from coordinator.core.classic import join
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.effects import Effects
from coordinator.core.errors import ErrorCode, MustWait, Refused
from coordinator.core.events import GroupCreated
from coordinator.core.group_table import GroupTable
from coordinator.core.requests import DeleteGroup, JoinGroup
from coordinator.core.rows import Refuse, reconciled
from coordinator.core.session_values.operators import SetGroupPolicy
from coordinator.core.session_values.requests import Attach
from coordinator.core.sessions.arrive import attach
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.policies import set_policy
from coordinator.core.written import OffsetsWritten

IS_CLASSIC = Refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group is classic")
IS_OF_SESSIONS = Refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group is one of sessions")

_attach = reconciled(attach.attach)


def attach_to_classic(
    table: GroupTable, group: ClassicGroup, command: Attach, now_ms: int, out: Effects
) -> None:
    """Make an Empty classic group one of sessions, with its first member.

    Raises:
        Refused: INCONSISTENT_GROUP_PROTOCOL: it has members, or had some and is to be kept; and
            what `attach.attach` refuses.
        MustWait: an assignment of it is being written.
    """
    attach.check(command, table.config)
    admission.check_alive(group)
    if group.is_writing_assignment:
        raise MustWait(now_ms + table.config.offset_commit_timeout_ms)
    _check_unused(group)
    if command.keep_classic and group.protocol_type is not None:
        raise Refused(IS_CLASSIC.error, IS_CLASSIC.message)
    _attach_to_new(table, table.as_sessions(group, command.group_id, now_ms), command, now_ms, out)


def attach_to_none(table: GroupTable, command: Attach, now_ms: int, out: Effects) -> None:
    """Make a session group with its first member.

    Raises:
        Refused: see `attach.attach`.
    """
    attach.check(command, table.config)
    out.note(GroupCreated(command.group_id))
    _attach_to_new(table, table.as_sessions(None, command.group_id, now_ms), command, now_ms, out)


def _attach_to_new(
    table: GroupTable, group: SessionGroup, command: Attach, now_ms: int, out: Effects
) -> None:
    table.groups[group.group_id] = group
    _attach(table, group, command, now_ms, out)


def join_session_group(
    table: GroupTable, group: SessionGroup, command: JoinGroup, now_ms: int, out: Effects
) -> None:
    """Make an Empty session group a classic one, with its first member.

    Raises:
        Refused: INCONSISTENT_GROUP_PROTOCOL: it has members, or partitions are reserved; and
            what `join.join_group` refuses.
        MustWait: a member's admission is being written.
    """
    _check_nobody_arrives(table, group, now_ms)
    if not group.is_deserted or group.written_partitions:
        raise Refused(IS_OF_SESSIONS.error, IS_OF_SESSIONS.message)
    classic = table.groups[group.group_id] = table.as_classic(group, now_ms)
    join.join_group(classic, command, now_ms, out, config=table.config, ids=table.context.ids)


def delete_session_group(
    table: GroupTable, group: SessionGroup, command: DeleteGroup, now_ms: int, out: Effects
) -> None:
    """Delete a session group without members.

    Raises:
        Refused: see `admin.delete_group`.
        MustWait: a member's admission is being written.
    """
    _check_nobody_arrives(table, group, now_ms)
    admin.delete_group(group, command, out)


def set_policy_of_classic(
    table: GroupTable, group: ClassicGroup, command: SetGroupPolicy, now_ms: int, out: Effects
) -> None:
    """Set the policy of an Empty classic group, which counts once it is one of sessions.

    Raises:
        Refused: INCONSISTENT_GROUP_PROTOCOL: it has members; and what `set_policy` refuses.
    """
    _check_unused(group)
    set_policy(group, command, now_ms, out, config=table.config)


def set_policy_of_none(
    table: GroupTable, command: SetGroupPolicy, now_ms: int, out: Effects
) -> None:
    """Make a session group with a policy, for members that are to come.

    Raises:
        Refused: see `set_policy`.
    """
    group = table.as_sessions(None, command.group_id, now_ms)
    set_policy(group, command, now_ms, out, config=table.config)
    table.groups[command.group_id] = group
    out.note(GroupCreated(command.group_id))


def commit_written(
    table: GroupTable, group: ClassicGroup, done: OffsetsWritten, _now_ms: int, out: Effects
) -> None:
    """Answer a commit; a group that was created for it goes if the log has refused it."""
    offsets.offsets_written(done, out)
    if not group.generation and group.is_vacant and not group.records():
        del table.groups[done.group_id]


def _check_unused(group: ClassicGroup) -> None:
    if group.member_count or group.generation < 0:
        raise Refused(IS_CLASSIC.error, IS_CLASSIC.message)


def _check_nobody_arrives(table: GroupTable, group: SessionGroup, now_ms: int) -> None:
    if group.arriving:
        raise MustWait(now_ms + table.config.offset_commit_timeout_ms)
