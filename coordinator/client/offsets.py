"""Offsets between the member's words and the wire's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator.assignors import TopicPartition
from coordinator.client.errors import (
    CommitFailed,
    CoordinatorError,
    OffsetMismatch,
    RebalanceInProgress,
    StaleMember,
)
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode

_STALE = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A commit of one partition; `offset` is the next one to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class Commit:
    """What the owner wants stored. `expected`: what must be stored now, by partition; -1: none."""

    offsets: Offsets
    expected: Mapping[TopicPartition, int] = field(default_factory=dict)
    atomic: bool = False
    manifest: bytes = b""

    def check(self) -> None:
        """Return if every offset can be one.

        Raises:
            CommitFailed: one is negative.
        """
        negative = [p for p, offset in self.offsets.items() if _number(offset) < 0]
        if negative:
            named = ", ".join(f"{p.topic}[{p.partition}]" for p in sorted(negative))
            raise CommitFailed(
                f"nothing was sent, for an offset is negative: {named}", "INVALID_ARGUMENT"
            )


def by_topic_partition(offsets: Offsets) -> Offsets:
    """The same, where plain tuples of topic and number may have been given."""
    return {TopicPartition(*partition): offset for partition, offset in offsets.items()}


def _number(offset: int | OffsetAndMetadata) -> int:
    return offset if isinstance(offset, int) else offset.offset


def commit_topics(
    offsets: Offsets, expected: Mapping[TopicPartition, int]
) -> list[pb.OffsetCommitRequest.Topic]:
    """The topics of a commit request."""
    by_topic: dict[str, list[pb.OffsetCommitRequest.Partition]] = {}
    for key, value in offsets.items():
        commit = OffsetAndMetadata(value) if isinstance(value, int) else value
        by_topic.setdefault(key.topic, []).append(
            pb.OffsetCommitRequest.Partition(
                partition_index=key.partition,
                committed_offset=commit.offset,
                committed_leader_epoch=commit.leader_epoch,
                committed_metadata=commit.metadata,
                expected_committed_offset=expected.get(key),
            )
        )
    return [
        pb.OffsetCommitRequest.Topic(name=topic, partitions=partitions)
        for topic, partitions in by_topic.items()
    ]


def commit_codes(response: Any) -> set[int]:
    """The error codes of all partitions."""
    return {p.error_code for t in response.topics for p in t.partitions}


def judge_commit(response: pb.OffsetCommitResponse, offsets: Offsets, *, repeated: bool) -> None:
    """Return if everything is stored.

    Args:
        repeated: an earlier attempt may have arrived; what it stored is no mismatch.
    Raises:
        RebalanceInProgress, StaleMember, OffsetMismatch, CommitFailed: it was refused.
    """
    found: dict[TopicPartition, int] = {}
    refused: set[int] = set()
    for topic in response.topics:
        for p in topic.partitions:
            if p.error_code == ErrorCode.OFFSET_MISMATCH:
                found[TopicPartition(topic.name, p.partition_index)] = p.committed_offset
            elif p.error_code != ErrorCode.NONE:
                refused.add(p.error_code)
    if refused:
        code = min(refused)
        name = ErrorCode.Name(ErrorCode.ValueType(code))
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            raise RebalanceInProgress(response.error_message, name)
        kind = StaleMember if code in _STALE else CommitFailed
        raise kind(response.error_message, name)
    if found:
        wanted = {key: _number(offset) for key, offset in offsets.items()}
        if repeated and all(wanted[key] == offset for key, offset in found.items()):
            return  # The first attempt had arrived after all.
        raise OffsetMismatch(response.error_message, "OFFSET_MISMATCH", found)


def fetch_topics(partitions: Iterable[TopicPartition]) -> list[pb.OffsetFetchRequest.Topic]:
    """The topics of a fetch request."""
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    return [
        pb.OffsetFetchRequest.Topic(name=topic, partition_indexes=indexes)
        for topic, indexes in by_topic.items()
    ]


def fetched(response: pb.OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
    """Commits by partition; offset -1: none.

    Raises:
        CoordinatorError: the request was refused.
    """
    if response.error_code != ErrorCode.NONE:
        raise CoordinatorError(response.error_message, ErrorCode.Name(response.error_code))
    return {
        TopicPartition(t.name, p.partition_index): OffsetAndMetadata(
            p.committed_offset, p.metadata, p.committed_leader_epoch
        )
        for t in response.topics
        for p in t.partitions
    }
