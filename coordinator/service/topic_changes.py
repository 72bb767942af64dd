"""Changes of topics by operators: a count is set, raised, lowered or deleted.

Counts are offsets of a reserved group (see `core/topics.py`). A change is a compare-and-set over
the count that was looked at, so two operators cannot overwrite each other unseen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial

from coordinator.core.limits import SET_TOPIC
from coordinator.core.topics import PARTITIONS_MAX, SET_PARTITION, has_legal_name
from coordinator.core.values.errors import ErrorCode, Refused, advice
from coordinator.core.values.ids import NO_OFFSET, TOPICS_GROUP, CallId
from coordinator.core.values.replies import CommitReply, OffsetDeleteReply, Reply
from coordinator.core.values.requests import CommitOffsets, DeleteOffsets, PartitionCommit, Request
from coordinator.service.topics import (
    ALL_PARTITIONS_MAX,
    TOPICS_MAX,
    TopicCounts,
    Topics,
    TopicView,
)

FOR_EVER_MS = 2**61
"""Retention of counts: far more than any clock shows."""
TRIES = 5

Ask = Callable[[Callable[[CallId], Request]], Awaitable[Reply]]
"""Answers one command, given the function that makes it; through the pipeline."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Result of a change. `counts`: those before it."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    counts: TopicCounts = field(default_factory=TopicCounts)


async def set_topic(
    topics: Topics, ask: Ask, topic: str, partitions: int, *, may_shrink: bool
) -> Changed:
    """Set the number of partitions of a topic; returns once it is durable.

    Args:
        may_shrink: the number may be smaller than the one in force.
    """
    done = Changed()
    for _ in range(TRIES):
        view = await topics.refresh()
        before = view.topics.get(topic, TopicCounts())
        try:
            _check(view, before, topic, partitions, may_shrink=may_shrink)
        except Refused as refused:
            return Changed(refused.error, refused.message, before)
        reply = await ask(partial(_commit, topic, partitions, before.set))
        topics.note_change()
        assert isinstance(reply, CommitReply)
        (result,) = reply.results
        done = Changed(result.error, reply.message, before)
        if result.error is not ErrorCode.OFFSET_MISMATCH:
            return done
    return replace(done, message="others change this topic at the same time; try again")


async def delete_topic(topics: Topics, ask: Ask, topic: str) -> Changed:
    """Delete the count that was set for a topic; returns once that is durable."""
    before = (await topics.refresh()).topics.get(topic, TopicCounts())
    if not before.set:
        known = f"groups tell its {before.reported} partitions, and none are set" * bool(
            before.reported
        )
        return Changed(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            known or advice(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            before,
        )
    reply = await ask(
        lambda call_id: DeleteOffsets(
            call_id=call_id, group_id=TOPICS_GROUP, partitions=((topic, SET_PARTITION),)
        )
    )
    topics.note_change()
    assert isinstance(reply, OffsetDeleteReply)
    return Changed(reply.error, reply.message, before)


def _check(
    view: TopicView, before: TopicCounts, topic: str, partitions: int, *, may_shrink: bool
) -> None:
    """Refuse what a topic cannot be. Raises `Refused`."""
    if not has_legal_name(topic):
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"a topic's name has 1 to {SET_TOPIC.characters} letters, digits, dots, underscores "
            "and dashes, as in Kafka, and is neither '.' nor '..'",
        )
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS, f"a topic has from 1 to {PARTITIONS_MAX} partitions"
        )
    if partitions < before.partitions and not may_shrink:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"the topic has {before.partitions} partitions; fewer are set with --shrink "
            "(may_shrink), and members then stop to work on the others",
        )
    if not before.set and sum(1 for counts in view.topics.values() if counts.set) >= TOPICS_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"{TOPICS_MAX} topics are set, and there may be no more"
        )
    total = sum(counts.set for counts in view.topics.values()) - before.set + partitions
    if total > ALL_PARTITIONS_MAX:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"all topics that are set would have {total} partitions, and there may be "
            f"{ALL_PARTITIONS_MAX}",
        )


def _commit(topic: str, partitions: int, expected: int, call_id: CallId) -> CommitOffsets:
    commit = PartitionCommit(topic, SET_PARTITION, partitions, expected=expected or NO_OFFSET)
    return CommitOffsets(
        call_id=call_id,
        group_id=TOPICS_GROUP,
        partitions=(commit,),
        atomic=True,
        retention_ms=FOR_EVER_MS,
    )
