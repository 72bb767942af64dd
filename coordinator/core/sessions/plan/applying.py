"""Applies the result of a plan, in slices.

The group may have changed while the plan was computed. So it is applied move by move: a move counts
if its partition is where the input had it and the receiver may still have it. The rest is planned
again.

The first plan of a large group has so many moves that heartbeats would wait for them. So a step
applies a slice, and asks to be ticked again; in between the shard handles other inputs. The grants
of a slice are one record, which is small enough for every log.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat

from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases, successors
from coordinator.core.sessions.holdings import TopicHoldings, cut, grant_bytes, ranges_of, size_of
from coordinator.core.sessions.member import SessionMember
from coordinator.core.sessions.planning import PlanInProgress
from coordinator.core.step import Step
from coordinator.core.values.commands import NoFollowUp, ReviewPartitions
from coordinator.core.values.ids import TopicPartition
from coordinator.core.values.plans import NOBODY, Numbered, Plan, Range
from coordinator.core.values.records import Grant, PartitionsGranted

SLICE = 2_000
"""Partitions that one step applies: 5 ms, and as much again when they are granted."""
RECORD_BYTES = 512 * 1024
"""Size of the largest record of grants."""


def begin(group: SessionGroup, made: Plan, numbered: Numbered, now_ms: int) -> PlanInProgress:
    """Start applying a plan; the rest of the one before is dropped."""
    group.planning.targets.clear()
    group.planning.waiting.clear()
    applying = group.planning.applying = PlanInProgress(
        numbered,
        now_ms,
        deque(sorted(made.grants.items())),
        iter(made.moves),
        iter(made.unplaced.items()),
        draft=group.planning.take_draft(),
    )
    return applying


def go_on(group: SessionGroup, applying: PlanInProgress, step: Step) -> bool:
    """Apply the next slice; False: it was the last one."""
    left = _Grants(group, applying, step).take()
    if applying.topics or applying.grants:
        return True
    left -= _apply_moves(group, applying, left)
    topics = applying.numbered.topics
    for (number, partition), why in islice(applying.unplaced, left):
        applying.found_unplaced[topics[number], partition] = why
        applying.draft.add_unplaced(why)
        left -= 1
    if left <= 0:
        return True
    group.planning.unplaced = applying.found_unplaced
    return False


def _apply_moves(group: SessionGroup, applying: PlanInProgress, most: int) -> int:
    numbered = applying.numbered
    moves = list(islice(applying.moves, most))
    applying.draft.add_moves(moves, numbered)
    for move in moves:
        partition = numbered.topics[move.topic], move.partition
        target = "" if move.target == NOBODY else numbered.member_ids[move.target]
        if target and group.partition_state(partition).is_backed_off:
            continue  # Nobody is asked for a while; the end of that calls for a plan.
        if _counts(group, partition, numbered.member_ids[move.source], target):
            group.planning.targets[partition] = target, move.reason
            group.planning.waiting[target] += 1
        else:
            applying.is_stale = True
    return len(moves)


def _counts(group: SessionGroup, partition: TopicPartition, source: str, target: str) -> bool:
    """True if a move of the plan is still valid."""
    if target and not successors.may_get(group, partition, target):
        return False
    open_now = group.handoff(partition)
    if open_now is None:
        return group.holder(partition) == source
    return open_now.successor == source  # It was planned anew.


class _Grants:
    """A slice of the grants of a plan."""

    def __init__(self, group: SessionGroup, applying: PlanInProgress, step: Step) -> None:
        self._group = group
        self._plan = applying
        self._step = step
        self._without_successor = _without_successor(group)
        self._loads = successors.Loads(group)
        self._grants: list[Grant] = []
        self._partitions_of: list[TopicPartition] = []

    def take(self) -> int:
        """Take a slice; returns how much of it is left."""
        group, applying = self._group, self._plan
        numbered = applying.numbered
        left, left_bytes = SLICE, RECORD_BYTES - len(group.group_id.encode())
        while left > 0 and (applying.topics or applying.grants):
            if not applying.topics:
                self._next_receiver()
                continue
            number, ranges = applying.topics.popleft()
            topic, member_id = numbered.topics[number], numbered.member_ids[applying.receiver]
            now, later = cut(ranges, left)
            size_bytes = grant_bytes(member_id, topic, now)
            if self._grants and size_bytes > left_bytes:
                applying.topics.appendleft((number, ranges))
                left = 0
                break
            if later:
                applying.topics.appendleft((number, later))
            left -= size_of(now)
            left_bytes -= size_bytes
            holdings = group.topics.get(topic) or TopicHoldings(topic)  # Or nobody declares it now.
            now_ms = self._step.now_ms
            applying.draft.add_grant(holdings.idle_spans, topic, member_id, now, now_ms)
            self._grant(member_id, holdings, now)
        if self._grants:
            written = ReviewPartitions(group.group_id, tuple(self._partitions_of))
            record = PartitionsGranted(group.group_id, tuple(self._grants))
            self._step.out.persist((record,), NoFollowUp(group.group_id), follow_up=written)
        return left

    def _next_receiver(self) -> None:
        group, applying = self._group, self._plan
        applying.receiver, by_topic = applying.grants.popleft()
        applying.topics.extend(sorted(by_topic.items()))
        member = group.members.get(applying.numbered.member_ids[applying.receiver])
        applying.capacity = sys.maxsize if member is None else self._loads.capacity_of(member)

    def _grant(self, member_id: str, holdings: TopicHoldings, ranges: tuple[Range, ...]) -> None:
        group, applying, topic = self._group, self._plan, holdings.topic
        member = group.members.get(member_id)
        if member is None or not member.receives:
            applying.is_stale = True
            return
        draining = self._without_successor.get(topic, ())
        redirected = _redirect(group, topic, ranges, member, draining, self._step)
        partitions = list(_partitions_of(topic, ranges))
        still = _still_free(
            group, holdings, ranges, partitions, member, applying.capacity - redirected
        )
        count = size_of(still)
        applying.is_stale = applying.is_stale or count + redirected < size_of(ranges)
        applying.capacity -= count + redirected
        if count:
            self._grants.append(
                Grant(member_id, topic, still, self._step.numbers.next_tokens(count))
            )
            if still is not ranges:
                partitions = list(_partitions_of(topic, still))
            group.note_write_pending(partitions, member_id)
            self._partitions_of += partitions


def _partitions_of(topic: str, ranges: tuple[Range, ...]) -> Iterator[TopicPartition]:
    for first, last in ranges:
        yield from zip(repeat(topic), range(first, last + 1), strict=False)


def _without_successor(group: SessionGroup) -> dict[str, list[int]]:
    """Partitions that are drained and have no successor."""
    draining: dict[str, list[int]] = {}
    for partition, open_now in group.open_handoffs():
        if (
            open_now.phase in phases.DRAINING
            and not group.partition_state(partition).writes_pending
        ):
            draining.setdefault(partition[0], []).append(partition[1])
    return draining


def _redirect(
    group: SessionGroup,
    topic: str,
    ranges: tuple[Range, ...],
    member: SessionMember,
    draining: Iterable[int],
    step: Step,
) -> int:
    """Name a member as the successor of what is drained, of `ranges`; returns of how many."""
    count = 0
    for partition in draining:
        is_meant = any(first <= partition <= last for first, last in ranges)
        if is_meant and successors.may_get(group, (topic, partition), member.member_id):
            phases.redirect(group, (topic, partition), member.member_id, step)
            count += 1
    return count


def _still_free(
    group: SessionGroup,
    holdings: TopicHoldings,
    ranges: tuple[Range, ...],
    partitions: Sequence[TopicPartition],
    member: SessionMember,
    capacity: int,
) -> tuple[Range, ...]:
    """Partitions of `ranges`, which `partitions` names, that a member may be given now."""
    declared = member.declares(holdings.topic)
    is_plain = not (holdings.open or holdings.reserved)
    if is_plain and capacity >= size_of(ranges) and ranges[-1][1] < declared:
        # The way of a first plan: no look at each partition, but for those on their way.
        holders = holdings.holders
        if all(
            holders[first : last + 1].count("") == last + 1 - first for first, last in ranges
        ) and group.partition_states.keys().isdisjoint(partitions):
            return ranges
    free: list[int] = []
    for partition in partitions:
        if (
            len(free) < capacity
            and not group.holder(partition)
            and group.handoff(partition) is None
            and partition[1] not in holdings.reserved
            and not group.partition_state(partition).writes_pending
            and successors.may_have(group, partition, member.member_id)
        ):
            free.append(partition[1])
    return ranges_of(free)
