"""Times between which holders stopped to work on their partitions.

The table is in `values.plan_journal`. A stop is noted when the end of a token is decided, and
forgotten with the next grant of the partition: a plan records how long it was idle. If no plan
makes the grant, the record of the next one has it. Stops are soft state: a fail-over forgets them.

Source: ours; the same question as in `core.journal.last_work`, but records of rules carry answers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.holdings import IdleSpan
from coordinator.core.sessions.member import SessionMember
from coordinator.core.sessions.partition import Release
from coordinator.core.values.ids import NO_OFFSET, NO_TIME, TopicPartition
from coordinator.core.values.plan_journal import StoppedBy, WorkStop
from coordinator.core.values.records import EndCause

DRAIN_MAX_MS = 60_000
"""Age of a commit above which its partition is taken to have had no rows since, not no holder."""
SILENT = (EndCause.LEASE_EXPIRED, EndCause.EVICTED, EndCause.RESTORED)
"""Ends of members that did not say when they stopped."""


def release(
    group: SessionGroup, partition: TopicPartition, now_ms: int, position: int = NO_OFFSET
) -> None:
    """Note that a holder has given a partition up: its token counts no more."""
    group.state_to_change(partition).release = Release(group.token(partition), position)
    _note(
        group,
        partition,
        WorkStop(StoppedBy.RELEASED, _ordered_ms(group, partition, now_ms), now_ms),
    )


def stop_by_force(group: SessionGroup, partition: TopicPartition, now_ms: int) -> WorkStop:
    """The stop of a holder whose deadline has passed."""
    stop = WorkStop(StoppedBy.FORCED, _ordered_ms(group, partition, now_ms), now_ms)
    return _until_its_commit(group, partition, stop)


def force(group: SessionGroup, partition: TopicPartition, stop: WorkStop) -> None:
    """Note that a holder's time is up: its token counts no more."""
    group.state_to_change(partition).release = Release(group.token(partition))
    _note_stop(group, partition, stop)


def end(group: SessionGroup, member: SessionMember, cause: EndCause, now_ms: int) -> None:
    """Note that a member's session has ended, with all of its tokens."""
    partitions = group.partitions_of(member.member_id)
    held = [
        partition for partition in partitions if group.partition_state(partition).release is None
    ]
    if cause in SILENT:
        stop = _silence(group, member, now_ms)
        for partition in held:
            _note(group, partition, stop)
        return
    stop = WorkStop(StoppedBy.LEFT, now_ms, now_ms)
    # A worker that drains ends its partitions one after the other, each with a commit, and leaves
    # after the last. A member that commits all of them at once works until it leaves.
    newest_ms = max((_committed_ms(group, partition) for partition in held), default=NO_TIME)
    for partition in held:
        committed_ms = _committed_ms(group, partition)
        is_drained = now_ms - DRAIN_MAX_MS <= committed_ms < newest_ms
        own = replace(stop, earliest_ms=committed_ms) if is_drained else stop
        _note_stop(group, partition, own)


def come_back(
    group: SessionGroup,
    member: SessionMember,
    lost: Collection[TopicPartition],
    seen_ms: int,
    now_ms: int,
) -> None:
    """Note how long the partitions of a member that is seen again were idle.

    Args:
        lost: partitions that it gets anew, because it does not claim them.
        seen_ms: when it was seen before; NO_TIME: not known.
    """
    unknown = seen_ms == NO_TIME
    if unknown:
        seen_ms = _last_sign_ms(group, member)
    latest_ms = now_ms if unknown else min(now_ms, seen_ms + member.lease_ms)
    stop = WorkStop(StoppedBy.LOST, seen_ms, latest_ms)
    idle_spans = {partition: _idle_span(group, partition, stop) for partition in lost}
    if not unknown and now_ms - seen_ms >= -(-2 * member.lease_ms // 3):
        stop = replace(stop, known_by=StoppedBy.SUSPENDED)
        for partition in group.partitions_of(member.member_id):
            if group.partition_state(partition).release is None:
                idle_spans[partition] = _idle_span(group, partition, stop)
    group.planning.draft.add_returns(idle_spans, member.member_id, now_ms)


def resume(
    group: SessionGroup, member_id: str, partitions: Iterable[TopicPartition], now_ms: int
) -> None:
    """Note that a member gets partitions that were idle, and no plan says so."""
    idle_spans = {
        partition: idle_span
        for partition in partitions
        if (idle_span := group.idle_span(partition)) is not None
    }
    group.planning.draft.add_returns(idle_spans, member_id, now_ms)


def last_record_ms(group: SessionGroup) -> int:
    """Time of the newest record of a group that says when it was written; NO_TIME: none does."""
    journal, commits = group.journal, group.offsets.values()
    latest_ms = max((stored.committed_at_ms for stored in commits), default=NO_TIME)
    if journal.plans:
        latest_ms = max(latest_ms, journal.plans[-1].made_at_ms)
    if journal.handoffs and (line := journal.handoffs[-1].line) is not None:
        latest_ms = max(latest_ms, line.ended_at_ms)
    return latest_ms


def _silence(group: SessionGroup, member: SessionMember, now_ms: int) -> WorkStop:
    latest_ms = min(now_ms, member.last_beat_ms + member.lease_ms // 4)
    if member.stream_number < 0:  # It has not attached to this owner of the shard.
        return WorkStop(StoppedBy.NOT_SEEN, _last_sign_ms(group, member), latest_ms)
    return WorkStop(StoppedBy.LAST_SEEN, member.last_beat_ms, latest_ms)


def _last_sign_ms(group: SessionGroup, member: SessionMember) -> int:
    """Last known work of a member that has not been seen since the shard changed owners."""
    partitions = group.partitions_of(member.member_id)
    commits = (_committed_ms(group, partition) for partition in partitions)
    held_ms = max(NO_TIME, group.planning.last_record_ms - member.lease_ms)
    return max(held_ms, max(commits, default=NO_TIME))


def _ordered_ms(group: SessionGroup, partition: TopicPartition, now_ms: int) -> int:
    """When a holder was ordered to stop or was suspended; without an order, its last commit.

    A partition that is given up without an order has failed, or stalled. With no commit of late,
    its member was at work when it was last seen.
    """
    holder = group.members.get(group.holder(partition))
    if holder is not None and holder.is_stalled:
        known_ms = holder.got_on_after_ms
        return min(now_ms, holder.progress_at_ms if known_ms == NO_TIME else known_ms)
    handoff = group.handoff(partition)
    if handoff is not None:
        line = handoff.line
        ordered = [at_ms for at_ms in (line.drain_at_ms, line.forced_at_ms) if at_ms != NO_TIME]
        if ordered:
            return min(ordered)
    committed_ms = _committed_ms(group, partition)
    if now_ms - DRAIN_MAX_MS <= committed_ms:
        return committed_ms
    return now_ms if holder is None else min(now_ms, holder.last_beat_ms)


def _note(group: SessionGroup, partition: TopicPartition, stop: WorkStop) -> None:
    group.topics[partition[0]].note_idle_span(partition[1], _idle_span(group, partition, stop))


def _note_stop(group: SessionGroup, partition: TopicPartition, stop: WorkStop) -> None:
    holder = group.members[group.holder(partition)]
    group.topics[partition[0]].note_idle_span(
        partition[1], IdleSpan(holder.member_id, holder.name, stop)
    )


def _idle_span(group: SessionGroup, partition: TopicPartition, stop: WorkStop) -> IdleSpan:
    holder = group.members[group.holder(partition)]
    return IdleSpan(holder.member_id, holder.name, _until_its_commit(group, partition, stop))


def _until_its_commit(group: SessionGroup, partition: TopicPartition, stop: WorkStop) -> WorkStop:
    """A commit after the earliest time shows that its holder still worked."""
    committed_ms = _committed_ms(group, partition)
    if committed_ms <= stop.earliest_ms:
        return stop
    return replace(stop, earliest_ms=min(committed_ms, stop.latest_ms))


def _committed_ms(group: SessionGroup, partition: TopicPartition) -> int:
    stored = group.offsets.get(partition)
    return NO_TIME if stored is None else stored.committed_at_ms
