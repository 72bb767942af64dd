"""The machine's table: each command has one row, and each row says what a missing group means."""

from __future__ import annotations

from typing import get_args

import pytest

from coordinator.core.config import GroupConfig
from coordinator.core.group import GroupState
from coordinator.core.machine import TABLE, Create, GroupMachine, Row
from coordinator.core.values import commands
from coordinator.core.values.commands import (
    AnswerCommit,
    CallCancelled,
    ExpireOffsets,
    HandleAgain,
    SessionExpired,
)
from coordinator.core.values.effects import Effects
from coordinator.core.values.errors import Refuse
from coordinator.core.values.requests import (
    CommitOffsets,
    DeleteGroup,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    PartitionCommit,
    PutDocuments,
    SetGroupPolicy,
)
from coordinator.core.values.session_messages import Attach
from coordinator.runtime.payloads import PAYLOADS
from coordinator.testing.virtual import CountingIds

JOIN = {
    "call_id": 1, "group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
    "member_id": "", "protocol_type": "consumer", "protocols": (("range", b""),),
}  # fmt: skip


@pytest.fixture
def groups() -> GroupMachine:
    return GroupMachine(GroupConfig(), CountingIds(), PAYLOADS)


def handle(groups: GroupMachine, command: commands.Command) -> Effects:
    out = Effects()
    groups.handle(command, 0, out)
    return out


def test_each_command_has_one_row_or_concerns_the_table_itself():
    of_the_machine = {ListGroups, CallCancelled, ExpireOffsets, AnswerCommit, HandleAgain}
    assert TABLE.keys() == set(get_args(commands.Command)) - of_the_machine


def test_no_request_is_ignored_and_no_follow_up_is_refused():
    for command, row in TABLE.items():
        if isinstance(row, Row):
            cells = (row.classic, row.session, row.missing)
            if command in get_args(commands.Request):
                assert None not in cells, command.__name__
            else:
                assert not any(isinstance(cell, Create | Refuse) for cell in cells), (
                    command.__name__
                )


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (Heartbeat(call_id=1, group_id="g", generation=1, member_id="m"), "UNKNOWN_MEMBER_ID"),
        (DeleteGroup(call_id=1, group_id="g"), "GROUP_ID_NOT_FOUND"),
        (DescribeGroup(call_id=1, group_id="g"), "NONE"),
        (LeaveGroup(call_id=1, group_id="g", members=(LeavingMember("m"),)), "NONE"),
        (JoinGroup(**{**JOIN, "member_id": "m"}), "UNKNOWN_MEMBER_ID"),
        (JoinGroup(**{**JOIN, "member_id": "m", "session_timeout_ms": 1}),
         "INVALID_SESSION_TIMEOUT"),
        (JoinGroup(**{**JOIN, "protocols": ()}), "INCONSISTENT_GROUP_PROTOCOL"),
    ],
)  # fmt: skip
def test_a_command_without_its_group_is_answered_and_makes_none(groups, command, answer):
    ((_, reply),) = handle(groups, command).replies
    assert reply.error.name == answer
    assert not groups.groups


def test_a_member_cannot_commit_into_a_missing_group_and_an_outsider_makes_it(groups):
    commit = {"call_id": 1, "group_id": "g", "partitions": (PartitionCommit("t", 0, 1),)}
    ((_, reply),) = handle(groups, CommitOffsets(**commit, generation=1)).replies
    assert {result.error.name for result in reply.results} == {"GROUP_ID_NOT_FOUND"}
    assert not groups.groups
    mismatch = (PartitionCommit("t", 0, 1, expected=5),)
    ((_, reply),) = handle(groups, CommitOffsets(**{**commit, "partitions": mismatch})).replies
    assert {result.error.name for result in reply.results} == {"OFFSET_MISMATCH"}
    assert not groups.groups
    handle(groups, CommitOffsets(**commit))
    assert list(groups.groups) == ["g"]


def test_a_group_is_made_by_requests_that_check_whether_they_may():
    rows = TABLE.items()
    makers = {c for c, row in rows if isinstance(row, Row) and isinstance(row.missing, Create)}
    assert makers == {JoinGroup, CommitOffsets, PutDocuments, Attach, SetGroupPolicy}


def test_a_follow_up_for_a_group_that_is_given_up_falls_silent(groups):
    out = handle(groups, JoinGroup(**JOIN, require_known_member_id=False))
    member_id = out.defers[0].member_id
    groups.groups["g"].state = GroupState.DEAD
    out = handle(groups, SessionExpired("g", member_id, 0))
    assert not [*out.replies, *out.events, *out.defers, *out.checks]
    assert list(groups.groups["g"].members) == [member_id]
