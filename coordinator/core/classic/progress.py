"""Authority to commit offsets and to report log ends in a classic group."""

from __future__ import annotations

from coordinator.core import log_ends, offsets
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.member import ClassicMember
from coordinator.core.classic.membership import (
    check_generation,
    check_not_replaced,
    identify,
    note_seen,
    reset_session,
)
from coordinator.core.group import GroupState
from coordinator.core.step import Step
from coordinator.core.values.errors import ErrorCode, Refused
from coordinator.core.values.events import CommitWaited
from coordinator.core.values.requests import CommitOffsets, ReportLogEnds


def commit_offsets(group: ClassicGroup, command: CommitOffsets, step: Step) -> None:
    """Write offsets, and answer when they are durable.

    Raises:
        Refused: before anything changed; every partition then gets the code.
        MustWait: a write in flight decides the compared offset, or whether the caller is fenced.
    """
    member = _check_committer(group, command)
    offsets.check_commit(group, command, step.config)
    if member is not None:
        note_seen(group, member, step, beats=False)
        if member.unseen_signs:
            _note_waits(command, step)
        reset_session(group, member, step)
    offsets.commit(group, command, step)


def _note_waits(command: CommitOffsets, step: Step) -> None:
    waits = tuple(
        ((commit.topic, commit.partition), commit.waited_ms)
        for commit in command.partitions
        if commit.waited_ms > 0
    )
    if waits:
        step.out.note(CommitWaited(command.group_id, waits))


def _check_committer(group: ClassicGroup, command: CommitOffsets) -> ClassicMember | None:
    """Return the member that commits; None for a caller that is no member.

    Others may commit while the group is Empty, and always by an atomic compare-and-set of every
    partition (see decision 0008), unless they say that the group has to be Empty.

    Raises:
        Refused: checked in Kafka's order: identity, generation, state.
        MustWait: a restarted process may have taken its place.
    """
    group.check_alive()
    if command.requires_empty and group.state is not GroupState.EMPTY:
        raise Refused(ErrorCode.NON_EMPTY_GROUP)
    if command.generation < 0 and group.state is GroupState.EMPTY:
        return None
    if command.generation < 0 and not command.member_id and command.instance_id is None:
        if command.atomic and all(p.expected is not None for p in command.partitions):
            return None
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members: only they may commit")
    member = identify(group, command.member_id, command.instance_id)
    check_generation(group, command.generation)
    check_not_replaced(group, member)
    if group.state is GroupState.AWAITING_SYNC:
        raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
    return member


def report_log_ends(group: ClassicGroup, command: ReportLogEnds, step: Step) -> None:
    """Store reported log ends.

    Raises:
        Refused: for the reasons of a heartbeat.
    """
    group.check_alive()
    identify(group, command.member_id, command.instance_id)
    check_generation(group, command.generation)
    log_ends.take_in(group, command, step)
