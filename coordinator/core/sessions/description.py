"""Descriptions of session groups: who holds what, what is open, and who is waited for.

A reply takes copies of a topic's columns, which costs 1 ms for 250,000 partitions; they become
ranges in the transport's slices.
"""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.core.group import GroupState
from coordinator.core.sessions import orders
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.holdings import Handoff, TopicHoldings, ranges_of
from coordinator.core.sessions.member import SessionMember
from coordinator.core.sessions.plan import scheduler
from coordinator.core.step import Step
from coordinator.core.values.ids import NO_OFFSET, NO_TIME, TopicPartition
from coordinator.core.values.records import Phase
from coordinator.core.values.replies import (
    AwaitedMember,
    DescribedMember,
    DescribedTopic,
    DescribeReply,
    FreeRow,
    HandoffRow,
    PhaseReply,
    RebalancesReply,
    ReservationRow,
    SessionGroupReply,
    SessionMemberState,
)
from coordinator.core.values.requests import (
    DescribeGroup,
    DescribePhase,
    DescribeSessionGroup,
    ListRebalances,
)
from coordinator.core.values.session_messages import Standing

FREE_NEXT_PLAN = "plan_due"
"""Code of partitions for which the next plan looks for a holder."""
FREE_BACKED_OFF = "refused"
"""Code of partitions that were refused three times in a row, and wait."""
FREE_DELAYED = "handover_delay"


def describe(group: SessionGroup, command: DescribeSessionGroup, step: Step) -> None:
    """Answer with everything that an operator may want to know about a group now."""
    declared = group.declared()
    reply = SessionGroupReply(
        group_id=group.group_id,
        state=group.current_state().value,
        policy=group.policy,
        is_policy_stored=group.is_policy_stored,
        now_ms=step.now_ms,
        planned_at_ms=group.planning.planned_at_ms,
        plan_due_ms=scheduler.due(group, step.config),
        members=tuple(_members(group)),
        topics=tuple(
            DescribedTopic(name, declared.get(name, 0), tuple(topic.holders), topic.tokens[:])
            for name, topic in sorted(group.topics.items())
        ),
        handoffs=tuple(
            _handoff(group, partition, handoff) for partition, handoff in sorted(_open(group))
        ),
        reservations=tuple(_reservations(group)),
        free=tuple(
            row
            for name, topic in sorted(group.topics.items())
            for row in _free(group, topic, declared.get(name, 0), step.now_ms)
        ),
    )
    step.out.reply(command.call_id, reply)


def describe_as_group(group: SessionGroup, command: DescribeGroup, step: Step) -> None:
    """Answer DescribeGroups: members with what they hold, as of a consumer group."""
    members = tuple(
        DescribedMember(
            member.member_id,
            member.record.name or None,
            member.record.client_id,
            member.record.client_host,
            holds=tuple(sorted(group.partitions_of(member.member_id))),
        )
        for member in group.members.values()
    )
    reply = DescribeReply(
        group.group_id,
        state=group.current_state().value,
        protocol_type=group.protocol_type or "",
        members=members,
        group_type=group.kind,
    )
    step.out.reply(command.call_id, reply)


def list_journal(group: SessionGroup, command: ListRebalances, step: Step) -> None:
    """Answer ListRebalances: plans and hand-offs, newest first.

    Raises:
        MustWait: a record of the journal is being written.
    """
    group.check_journal(command.has_waited, step.now_ms)
    journal = group.journal
    reply = RebalancesReply(
        plans=tuple(journal.plans)[::-1], handoffs=tuple(journal.handoffs)[::-1]
    )
    step.out.reply(command.call_id, reply)


def describe_phase(group: SessionGroup, command: DescribePhase, step: Step) -> None:
    """Answer DescribePhase: the members whose word is awaited, or the time of the next plan."""
    state = group.current_state()
    since_ms, deadline_ms = group.planning.requested_at_ms, scheduler.due(group, step.config)
    awaited: dict[str, AwaitedMember] = {}
    if state is GroupState.RECONCILING:
        opened = [handoff for _, handoff in group.open_handoffs()]
        since_ms = min(handoff.line.opened_at_ms for handoff in opened)
        deadline_ms = max(handoff.deadline_ms for handoff in opened)
    for partition, handoff in group.open_handoffs():
        member = group.members.get(waited_for(group, partition, handoff))
        if member is not None and member.member_id not in awaited:
            awaited[member.member_id] = _awaited(member)
    is_waiting = state in (GroupState.ASSIGNING, GroupState.RECONCILING)
    # Nobody else works on what these hold until their leases end.
    suspect = [m for m in group.members.values() if m.is_suspect and m.member_id not in awaited]
    for member in suspect:
        awaited[member.member_id] = _awaited(member)
    if suspect and not is_waiting:
        is_waiting, since_ms = True, min(member.suspect_since_ms for member in suspect)
        deadline_ms = max(member.ends_at_ms for member in suspect)
    reply = PhaseReply(
        state=state.value,
        since_ms=since_ms if is_waiting else group.state_changed_at_ms,
        deadline_ms=deadline_ms if is_waiting else NO_TIME,
        awaited=tuple(awaited.values()),
    )
    step.out.reply(command.call_id, reply)


def _awaited(member: SessionMember) -> AwaitedMember:
    return AwaitedMember(
        member.member_id,
        member.record.client_id or member.record.name,
        member.record.client_host,
        last_seen_ms=member.last_beat_ms,
        session_timeout_ms=member.lease_ms,
    )


# --- Rows ---------------------------------------------------------------------------------------


def _members(group: SessionGroup) -> Iterator[SessionMemberState]:
    for member in group.members.values():
        yield _member(group, member, Standing.MEMBER)
    for name, queued in group.waiting.items():
        yield _member(group, queued, Standing.WAITING, group.names.get(name, ""))


def _member(
    group: SessionGroup, member: SessionMember, standing: Standing, waits_for: str = ""
) -> SessionMemberState:
    is_waiting = standing is Standing.WAITING
    seen_ms = member.last_beat_ms
    old = group.members.get(waits_for)
    # A waiting process has no lease: what ends its wait is the end of the other one's.
    ends = old if is_waiting else member
    is_leased = ends is not None and ends.last_beat_ms != NO_TIME
    return SessionMemberState(
        record=member.record,
        standing=standing,
        is_suspect=member.is_suspect,
        lease_ms=member.lease_ms,
        last_seen_ms=seen_ms,
        lease_ends_ms=ends.last_beat_ms + ends.lease_ms if ends and is_leased else NO_TIME,
        partitions=group.count_held_by(member.member_id),
        is_ready=member.is_ready,
        is_overloaded=member.is_overloaded,
        is_stalled=member.is_stalled,
        leaves_at_ms=member.leaves_at_ms,
        why="" if is_waiting else orders.why_empty(group, member),
        waits_for=waits_for,
        differing_wishes=tuple(
            (name, value) for name, value in member.wishes if getattr(group.policy, name) != value
        ),
    )


def _open(group: SessionGroup) -> Iterator[tuple[TopicPartition, Handoff]]:
    # Places differ, so sorting never compares hand-offs.
    return group.open_handoffs()


def _handoff(group: SessionGroup, partition: TopicPartition, handoff: Handoff) -> HandoffRow:
    line, position = handoff.line, group.partition_state(partition).position
    since_ms = {Phase.DRAIN: line.drain_at_ms, Phase.FORCED: line.forced_at_ms}.get(
        handoff.phase, line.opened_at_ms
    )
    return HandoffRow(
        partition,
        handoff.handoff_id,
        handoff.phase,
        handoff.source,
        handoff.successor,
        line.opened_at_ms,
        since_ms,
        handoff.deadline_ms,
        waited_for(group, partition, handoff),
        handoff.is_ready,
        handoff.position if position == NO_OFFSET else position,
        line.reason,
    )


def waited_for(group: SessionGroup, partition: TopicPartition, handoff: Handoff) -> str:
    """Id of the member whose word a hand-off waits for; empty: none's."""
    state = group.partition_state(partition)
    if state.writes_pending or state.release is not None:
        return ""
    if handoff.phase in (Phase.PREPARE, Phase.COPY):
        return "" if handoff.is_ready else handoff.successor
    return handoff.source


def _reservations(group: SessionGroup) -> Iterator[ReservationRow]:
    partitions: dict[str, list[TopicPartition]] = {name: [] for name in group.reserved_names}
    for name, topic in sorted(group.topics.items()):
        for partition, reservation in sorted(topic.reserved.items()):
            partitions.setdefault(reservation.name, []).append((name, partition))
    for name, reserved in partitions.items():
        yield ReservationRow(name, group.reserved_until_ms.get(name, NO_TIME), tuple(reserved))


def _free(
    group: SessionGroup, topic: TopicHoldings, declared: int, now_ms: int
) -> Iterator[FreeRow]:
    by_why: dict[str, list[int]] = {}
    for partition in _unheld(topic, declared):
        topic_partition = topic.topic, partition
        by_why.setdefault(_why_free(group, topic_partition, now_ms), []).append(partition)
    for why, partitions in sorted(by_why.items()):
        yield FreeRow(topic.topic, ranges_of(partitions), why)


def _unheld(topic: TopicHoldings, declared: int) -> Iterator[int]:
    partition = -1
    holders = topic.holders
    while True:
        try:
            partition = holders.index("", partition + 1, declared)
        except ValueError:
            break
        if partition not in topic.reserved and partition not in topic.open:
            yield partition
    yield from range(len(holders), declared)


def _why_free(group: SessionGroup, partition: TopicPartition, now_ms: int) -> str:
    state = group.partition_state(partition)
    if state.back_off is not None and state.back_off.until_ms > now_ms:
        return FREE_BACKED_OFF
    if max(state.not_before_ms, group.grants_from_ms) > now_ms:
        return FREE_DELAYED
    unplaced = group.planning.unplaced.get(partition)
    return FREE_NEXT_PLAN if unplaced is None else unplaced.value
