"""Commits of a session group: for partitions that the member holds, under their tokens.

A commit is judged by what the shard has decided, written or on its way: after RELEASED was taken
in, nothing under that token is accepted, although the record may not be durable yet.

Callers that are no members commit to an Empty group; else by an atomic compare-and-set, for
partitions that nobody holds or under the token of the holder (decision 0008).
"""

from __future__ import annotations

from dataclasses import replace

from coordinator.core import offsets
from coordinator.core.group import GroupState
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.step import Step
from coordinator.core.values.commands import AnswerCommit
from coordinator.core.values.effects import Effects
from coordinator.core.values.errors import ErrorCode, Refused, session_refused
from coordinator.core.values.events import SessionCommitFenced
from coordinator.core.values.replies import CommitReply, CommitResult
from coordinator.core.values.requests import CommitOffsets, PartitionCommit

DECISIONS_TOPIC = "__manifests"
"""Pseudo-topic whose offset is the number of decisions of the group's exactly-once sink."""


def commit_offsets(group: SessionGroup, command: CommitOffsets, step: Step) -> None:
    """Write the offsets of partitions that the member holds; refuse the others, each by itself.

    Raises:
        Refused: UNKNOWN_MEMBER_ID; NON_EMPTY_GROUP.
        MustWait: a commit in flight decides the compared offset.
    """
    group.check_alive()
    if not command.member_id:
        is_empty = group.current_state() is GroupState.EMPTY
        if command.requires_empty and not is_empty:
            raise Refused(ErrorCode.NON_EMPTY_GROUP)
        if not (is_empty or _may_outsider(group, command)):
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members: only they commit")
        offsets.check_commit(group, command, step.config)
        offsets.commit(group, command, step)
        return
    if group.is_gone(command.member_id):
        raise session_refused()
    accepted = tuple(
        commit for commit in command.partitions if _may(group, command.member_id, commit)
    )
    if len(accepted) == len(command.partitions):
        offsets.check_commit(group, command, step.config)
        offsets.commit(group, command, step)
        return
    refused = {
        (commit.topic, commit.partition): _refused(group, commit)
        for commit in command.partitions
        if not _may(group, command.member_id, commit)
    }
    fenced = sum(result.error is ErrorCode.FENCED_TOKEN for result in refused.values())
    if fenced:
        step.out.note(SessionCommitFenced(group.group_id, command.member_id, fenced))
    if command.atomic or not accepted:
        error = ErrorCode.FENCED_TOKEN if fenced else ErrorCode.INVALID_REQUEST
        results = tuple(
            refused.get(
                (commit.topic, commit.partition),
                CommitResult(commit.topic, commit.partition, error),
            )
            for commit in command.partitions
        )
        message = "" if len(refused) == fenced else "commits of a session group carry tokens"
        step.out.reply(command.call_id, CommitReply(results, message))
        return
    part = replace(command, partitions=accepted)
    offsets.check_commit(group, part, step.config)
    inner = replace(step, out=Effects())
    offsets.commit(group, part, inner)
    _with(refused, inner.out, step.out)


def _may_outsider(group: SessionGroup, command: CommitOffsets) -> bool:
    """True if nothing is stored unless all partitions are as the caller knows them, and no live
    holder's offset moves without its token.

    A decision of an exactly-once sink moves them for the holder, which has handed it the rows; it
    compares the count of decisions in the same commit, raises it if there were rows, and never goes
    back.
    """
    if not command.atomic or any(commit.expected is None for commit in command.partitions):
        return False
    if any(commit.topic == DECISIONS_TOPIC for commit in command.partitions):
        return all(commit.offset >= (commit.expected or 0) for commit in command.partitions)
    holders = (
        (commit, group.holder((commit.topic, commit.partition))) for commit in command.partitions
    )
    return all(not holder or _may(group, holder, commit) for commit, holder in holders)


def _may(group: SessionGroup, member_id: str, commit: PartitionCommit) -> bool:
    partition = commit.topic, commit.partition
    return (
        group.holder(partition) == member_id
        and group.token(partition) == commit.token
        and group.partition_state(partition).release is None
    )


def _refused(group: SessionGroup, commit: PartitionCommit) -> CommitResult:
    if commit.token is None:
        return CommitResult(commit.topic, commit.partition, ErrorCode.INVALID_REQUEST)
    holder = group.members.get(group.holder((commit.topic, commit.partition)))
    return CommitResult(
        commit.topic,
        commit.partition,
        ErrorCode.FENCED_TOKEN,
        holder_id="" if holder is None else holder.member_id,
        holder_name="" if holder is None else holder.record.name,
    )


def _with(refused: dict[tuple[str, int], CommitResult], inner: Effects, out: Effects) -> None:
    """Add the refused partitions to the reply."""
    for call_id, reply in inner.replies:
        assert isinstance(reply, CommitReply)
        out.reply(call_id, CommitReply((*reply.results, *refused.values()), reply.message))
    for write in inner.writes:
        then = write.then
        assert isinstance(then, AnswerCommit)
        then = replace(then, results=(*then.results, *refused.values()))
        out.persist(write.records, then, follow_up=write.follow_up)
