"""Claims of a returning member, compared with its holdings.

A grant that never arrived looks like one that was given up: what a member holds and does not claim,
or claims under another token, is granted anew, under a new token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from coordinator.core.sessions import stops
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases
from coordinator.core.sessions.holdings import grants_of
from coordinator.core.sessions.member import SessionMember
from coordinator.core.sessions.partition import Release
from coordinator.core.step import Numbers, Step
from coordinator.core.values.commands import NoFollowUp, ReviewPartitions
from coordinator.core.values.ids import TopicPartition
from coordinator.core.values.records import Grant, PartitionsGranted

Claims = Iterable[tuple[str, int, int]]
"""Topic, partition, token."""


def compare(
    group: SessionGroup, member: SessionMember, held: Claims, applied: int, step: Step
) -> list[TopicPartition]:
    """Compare the held set of a heartbeat, with grants that the member has taken in already.

    Returns:
        Partitions that it gets anew.
    """
    claimed = {(topic, partition): token for topic, partition, token in held if partition >= 0}
    mailbox = member.mailbox
    mailbox.note_applied(applied)
    # It cannot claim a grant that it has not seen yet.
    missing = [
        topic_partition
        for topic_partition in unclaimed(group, member, claimed)
        if mailbox.has_seen(topic_partition)
    ]
    # It is sent LOST, or the token that counts.
    mailbox.dirty.update(filter(mailbox.has_seen, _wrong(group, member.member_id, claimed)))
    grants, partitions = granted_anew(group, member, missing, step.now_ms, step.numbers)
    if grants:
        group.note_write_pending(partitions, member.member_id)
        record = PartitionsGranted(group.group_id, grants)
        written = ReviewPartitions(group.group_id, tuple(partitions))
        step.out.persist((record,), NoFollowUp(group.group_id), follow_up=written)
    for topic_partition in missing:
        if group.partition_state(topic_partition).release is not None:
            phases.reconcile(group, topic_partition, step)
    return partitions


def _wrong(
    group: SessionGroup, member_id: str, claimed: Mapping[TopicPartition, int]
) -> Iterator[TopicPartition]:
    """Claims that are not what the member holds. There may be 250,000: nothing is called."""
    topics = group.topics
    for partition, token in claimed.items():
        topic = topics.get(partition[0])
        if (
            topic is None
            or partition[1] >= len(topic.holders)
            or topic.holders[partition[1]] != member_id
            or topic.tokens[partition[1]] != token
        ):
            yield partition


def unclaimed(
    group: SessionGroup, member: SessionMember, claimed: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """Partitions that a member holds and does not claim, and has not released.

    A claim under another token is none of the grant that counts. What is being drained is not
    released by it: the member believes to hold it, and works on.
    """
    return sorted(
        partition
        for partition in group.partitions_of(member.member_id)
        if group.partition_state(partition).release is None
        and not _is_claimed(group, partition, claimed)
    )


def _is_claimed(
    group: SessionGroup, partition: TopicPartition, claimed: Mapping[TopicPartition, int]
) -> bool:
    if partition not in claimed:
        return False
    handoff = group.handoff(partition)
    is_drained = handoff is not None and handoff.phase in phases.DRAINING
    return is_drained or claimed[partition] == group.token(partition)


def granted_anew(
    group: SessionGroup,
    member: SessionMember,
    missing: Iterable[TopicPartition],
    now_ms: int,
    numbers: Numbers,
) -> tuple[tuple[Grant, ...], list[TopicPartition]]:
    """Re-grant held, unclaimed partitions; treat draining ones as released, and all of them while
    grants are suspended."""
    partitions: list[TopicPartition] = []
    for partition in missing:
        handoff = group.handoff(partition)
        is_drained = handoff is not None and handoff.phase in phases.DRAINING
        if (
            is_drained
            or group.partition_state(partition).writes_pending
            or not group.may_grant(now_ms)
        ):
            stops.release(group, partition, now_ms)
        else:
            partitions.append(partition)
            # No commit under its token counts any more.
            group.state_to_change(partition).release = Release(group.token(partition))
    member_id = member.member_id
    return grants_of(member_id, partitions, numbers.next_tokens, member_id), partitions
