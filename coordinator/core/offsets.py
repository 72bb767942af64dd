"""Committed offsets: commit, fetch, delete.

A commit becomes visible when its records are durable, through `Group.apply`; until
then `pending_offsets` counts it, so that a compare-and-set and a stable fetch can wait
for it and expiration leaves the partition alone.

Beyond Kafka: `expected` makes a partition's commit a compare-and-set, `atomic` makes
the request all or nothing, and a manifest travels with the commit. Together they let
a sink write its files and its progress exactly once.

Source: KIP-211, KIP-447; Kafka `OffsetMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from coordinator.core.config import GroupConfig
from coordinator.core.group import CONSUMER_PROTOCOL_TYPE, Group, GroupState
from coordinator.core.step import Step
from coordinator.core.values.commands import AnswerCommit, AnswerRequest
from coordinator.core.values.errors import ErrorCode, MustWait, Refused, advice
from coordinator.core.values.events import OffsetsCommittedEvent
from coordinator.core.values.ids import NO_OFFSET, TopicPartition
from coordinator.core.values.records import ManifestStored, OffsetCommitted, OffsetDeleted, Record
from coordinator.core.values.replies import (
    CommitReply,
    CommitResult,
    FetchedOffset,
    FetchReply,
    OffsetDeleteReply,
)
from coordinator.core.values.requests import (
    CommitOffsets,
    DeleteOffsets,
    FetchOffsets,
    ListRebalances,
    PartitionCommit,
    Request,
)

# --- Commit -----------------------------------------------------------------------------------


def check_commit(group: Group, command: CommitOffsets, config: GroupConfig) -> None:
    """Check a commit, without regard to who commits.

    Raises:
        Refused: the manifest is too long.
        MustWait: another commit of a compared partition is in flight.
    """
    if len(command.manifest) > config.offset_manifest_max_bytes:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"the manifest may have {config.offset_manifest_max_bytes} bytes",
        )
    # A commit in flight may change the offset to compare with: wait for its result.
    _wait_for_pending(
        group, ((p.topic, p.partition) for p in command.partitions if p.expected is not None)
    )


def commit(group: Group, command: CommitOffsets, step: Step) -> None:
    """Write offsets, and answer when they are durable.

    The caller has called `check_commit`, and checked that the member may commit.
    """
    results = [_judge(group, p, step.config) for p in command.partitions]
    failures = [r.error for r in results if r.error is not ErrorCode.NONE]
    if failures and command.atomic:
        results = [
            r if r.error is not ErrorCode.NONE else _not_committed(group, r, failures[0])
            for r in results
        ]
    accepted = [
        p for p, r in zip(command.partitions, results, strict=True) if r.error is ErrorCode.NONE
    ]
    if not accepted:
        step.out.reply(command.call_id, _commit_reply(results))
        return
    records: list[Record] = [_record(group, p, command, step.now_ms) for p in accepted]
    if command.manifest:
        records.append(ManifestStored(group.group_id, command.manifest))
    written = tuple((p.topic, p.partition) for p in accepted)
    for partition in written:
        group.await_offset(partition, step.now_ms + step.config.offset_commit_timeout_ms)
    step.out.persist(
        records, AnswerCommit(command.call_id, group.group_id, tuple(results), written)
    )


def check_first(_: None, command: CommitOffsets, _step: Step) -> None:
    """Refuse a member's commit to a group that does not exist.

    Raises:
        Refused: GROUP_ID_NOT_FOUND.
    """
    if command.generation >= 0:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)


def _wait_for_pending(group: Group, partitions: Iterable[TopicPartition]) -> None:
    """Raise `MustWait` until the time-out of the newest commit in flight of these partitions."""
    pending = group.pending_offsets
    deadlines = [pending[partition][1] for partition in partitions if partition in pending]
    if deadlines:
        raise MustWait(max(deadlines))


def answer_commit(command: AnswerCommit, step: Step) -> None:
    """Answer a commit that is durable or refused."""
    results: Iterable[CommitResult] = command.results
    if command.error is ErrorCode.NONE:
        step.out.note(OffsetsCommittedEvent(command.group_id, len(command.written)))
    else:
        results = [
            CommitResult(r.topic, r.partition, command.error) if r.error is ErrorCode.NONE else r
            for r in results
        ]
    step.out.reply(command.call_id, _commit_reply(results))


def _judge(group: Group, commit: PartitionCommit, config: GroupConfig) -> CommitResult:
    error, stored = ErrorCode.NONE, NO_OFFSET
    if len(commit.metadata) > config.offset_metadata_max_bytes:
        error = ErrorCode.OFFSET_METADATA_TOO_LARGE
    elif commit.expected is not None:
        stored = stored_offset(group, (commit.topic, commit.partition))
        if stored != commit.expected:
            error = ErrorCode.OFFSET_MISMATCH
    return CommitResult(
        commit.topic,
        commit.partition,
        error,
        stored if error is ErrorCode.OFFSET_MISMATCH else NO_OFFSET,
    )


def _not_committed(group: Group, result: CommitResult, error: ErrorCode) -> CommitResult:
    """Return the result of a valid partition if another one fails the atomic commit."""
    code = NO_OFFSET
    if error is ErrorCode.OFFSET_MISMATCH:
        code = stored_offset(group, (result.topic, result.partition))
    return CommitResult(result.topic, result.partition, error, code)


def _commit_reply(results: Iterable[CommitResult]) -> CommitReply:
    results = tuple(results)
    message = next((advice(r.error) for r in results if r.error is not ErrorCode.NONE), "")
    return CommitReply(results, message)


def _record(
    group: Group, commit: PartitionCommit, command: CommitOffsets, now_ms: int
) -> OffsetCommitted:
    return OffsetCommitted(
        group.group_id,
        commit.topic,
        commit.partition,
        commit.offset,
        commit.leader_epoch,
        commit.metadata,
        committed_at_ms=now_ms,
        expires_at_ms=None if command.retention_ms is None else now_ms + command.retention_ms,
    )


def stored_offset(group: Group, partition: TopicPartition) -> int:
    """Return the durable offset of a partition; -1 if there is none."""
    stored = group.offsets.get(partition)
    return NO_OFFSET if stored is None else stored.offset


# --- Fetch ------------------------------------------------------------------------------------


def fetch_offsets(group: Group | None, command: FetchOffsets, step: Step) -> None:
    """Answer with durable offsets; a group that does not exist has none.

    Raises:
        MustWait: `require_stable`, and a commit is in flight.
    """
    if group is None or group.state is GroupState.DEAD:
        absent = tuple(FetchedOffset(t, p) for t, p in command.partitions or ())
        step.out.reply(command.call_id, FetchReply(offsets=absent))
        return
    if command.require_stable:
        pending = group.pending_offsets if command.partitions is None else command.partitions
        _wait_for_pending(group, pending)
    if command.partitions is None:
        stored = tuple(group.offsets.values())
        step.out.reply(command.call_id, FetchReply(offsets=stored, manifest=group.manifest))
        return
    fetched = tuple(_fetched(group, partition) for partition in command.partitions)
    step.out.reply(command.call_id, FetchReply(offsets=fetched, manifest=group.manifest))


def resumed(request: Request) -> Request:
    """Return a request that has waited for the log, as it is to be handled again.

    Commits before a stable fetch have a result now. It does not wait for later ones. The same for
    the journal.
    """
    if isinstance(request, ListRebalances):
        return replace(request, has_waited=True)
    if isinstance(request, FetchOffsets):
        return replace(request, require_stable=False)
    return request


def _fetched(group: Group, partition: TopicPartition) -> FetchedOffset:
    stored = group.offsets.get(partition)
    if stored is None:
        return FetchedOffset(*partition)
    return FetchedOffset(*partition, stored.offset, stored.leader_epoch, stored.metadata)


# --- Delete -----------------------------------------------------------------------------------


def delete_offsets(group: Group, command: DeleteOffsets, step: Step) -> None:
    """Delete offsets that no member reads, and those that commits in flight are about to store.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    Source: KIP-496.
    """
    if group.state is GroupState.DEAD:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.member_count and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise Refused(ErrorCode.NON_EMPTY_GROUP)
    results = tuple(
        CommitResult(
            topic,
            partition,
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if group.member_count and group.is_subscribed(topic)
            else ErrorCode.NONE,
        )
        for topic, partition in command.partitions
    )
    doomed: list[Record] = [
        OffsetDeleted(group.group_id, r.topic, r.partition)
        for r in results
        if r.error is ErrorCode.NONE and _is_written(group, (r.topic, r.partition))
    ]
    reply = OffsetDeleteReply(results=results)
    if doomed:
        step.out.persist(doomed, AnswerRequest(command, reply))
    else:
        step.out.reply(command.call_id, reply)


def _is_written(group: Group, partition: TopicPartition) -> bool:
    """True if an offset is stored, or in flight: a record behind that commit deletes it too."""
    return partition in group.offsets or partition in group.pending_offsets
