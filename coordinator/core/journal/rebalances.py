"""The rebalance journal: the cause of each rebalance, its slow members, its cost.

It follows the events of the rules, and writes one `RebalanceRecord` at the end of each rebalance,
with a write that no call waits for. The `Trace` of a running rebalance is soft state: after a
fail-over the journal covers it from the first join on. What it cost is in `moves`.

Source: ours; questions of operators from apache/kafka KIP-1314.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator.core.classic.account import FailOver, Trace
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.group import Group
from coordinator.core.journal import last_work, moves, returns
from coordinator.core.payloads import PayloadReader
from coordinator.core.step import Step
from coordinator.core.values.commands import AnnounceRebalance
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.events import (
    CommitWaited,
    Event,
    GroupActivated,
    JoinPhaseCompleted,
    JoinRefused,
    MemberEvicted,
    MemberJoined,
    MemberLeft,
    MemberSeenAgain,
    MemberSynced,
    OffsetsCommittedEvent,
    RebalanceCompleted,
    RebalanceFailed,
    RebalanceJournaled,
    RebalanceNotified,
    RebalanceStarted,
    RefusedJoin,
    StaticMemberReplaced,
)
from coordinator.core.values.ids import NO_TIME
from coordinator.core.values.rebalance_journal import (
    RebalanceMember,
    RebalanceRecord,
    RemovedMember,
)
from coordinator.core.values.replies import RebalancesReply
from coordinator.core.values.requests import ListRebalances

COMPLETED, FAILED, INTERRUPTED = "completed", "failed", "interrupted"
LEFT = "left"
NO_OUTAGE = FailOver(0, 0, 0)
MEMBERS_MAX = 64
"""Members listed in a record; of larger groups the last ones to join."""
LOGGED_REFUSALS = (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_MAX_SIZE_REACHED)
REFUSED_MAX = 16
"""Refused clients that are remembered per group."""


def follow(groups: Mapping[str, Group], events: Iterable[Event], step: Step) -> None:
    """Update the accounts of all classic groups by the events of one command."""
    by_group: dict[str, list[Event]] = {}
    for event in events:
        if not isinstance(event, OffsetsCommittedEvent):  # Frequent, and it changes nothing here.
            by_group.setdefault(event.group_id, []).append(event)
    for group_id, of_group in by_group.items():
        group = groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            continue
        for event in of_group:
            if isinstance(event, JoinRefused):
                _note_refused(group, event, step.now_ms)
        if step.config.group_rebalance_journal:
            _follow(group, of_group, step)
        group.close_account()


def _follow(group: ClassicGroup, events: Iterable[Event], step: Step) -> None:
    """Update the trace of a group by its events; write its record at the end of a rebalance."""
    account = group.account
    early: list[Event] = []  # Events that caused a rebalance precede its start.
    for event in events:
        trace = account.trace
        match event:
            case GroupActivated():
                account.taken_over = _fail_over(group, event, step.now_ms)
            case CommitWaited() if account.taken_over is not None:
                account.taken_over.note_waits(event.waits, step.now_ms)
            case RebalanceStarted():
                if trace is not None:
                    _finish(group, trace, INTERRUPTED, step)
                elif account.taken_over is not None:
                    _write_return(group, returns.end_outage(group, step.now_ms), step)
                account.trace = Trace.begin(
                    event,
                    step.now_ms,
                    was_initial=group.initial_join,
                    before=group.committed,
                    idle_spans=account.idle_spans,
                )
                account.trace.taken_over = last_work.outage_before(group, step.now_ms)
                for early_event in early:
                    _note(group, account.trace, early_event, step.now_ms, step.payloads)
            case RebalanceCompleted() if trace is not None:
                _finish(group, trace, COMPLETED, step)
            case RebalanceFailed() if trace is not None:
                _finish(group, trace, f"{FAILED}: {event.error}", step)
            case _ if trace is not None:
                _note(group, trace, event, step.now_ms, step.payloads)
            case _:
                early.append(event)
    if account.trace is None:
        for event in early:
            _note_return(group, event, step)


def _fail_over(group: ClassicGroup, event: GroupActivated, now_ms: int) -> FailOver:
    members = group.committed.members if group.committed is not None else ()
    return FailOver(
        now_ms,
        event.last_record_ms,
        max((member.session_timeout_ms for member in members), default=0),
        {member.member_id: member for member in members},
        store_went_back=event.store_went_back,
    )


def _note(
    group: ClassicGroup, trace: Trace, event: Event, now_ms: int, read: PayloadReader
) -> None:
    match event:
        case MemberJoined():
            trace.joined.setdefault(event.member_id, (event, now_ms))
            last_work.rejoined(group, trace, event, now_ms, read)
        case RebalanceNotified():
            trace.reported_at_ms.setdefault(event.member_id, now_ms)
        case MemberSynced():
            trace.synced.setdefault(event.member_id, now_ms)
            if event.is_leader and trace.synced_at_ms == NO_TIME:
                trace.synced_at_ms = now_ms
        case JoinPhaseCompleted():
            trace.joined_at_ms = now_ms
            trace.protocol = event.protocol_name
        case MemberEvicted() | MemberLeft():
            trace.removed.append(_removed(trace, event, now_ms))
            last_work.gone(group, trace, event, now_ms, read)
        case StaticMemberReplaced():
            last_work.replaced(group, trace, event, now_ms, read)
        case _:
            pass


def _note_return(group: ClassicGroup, event: Event, step: Step) -> None:
    """Follow what returns without a rebalance; write its record at the end."""
    match event:
        case StaticMemberReplaced():
            returns.replaced(group, event, step.now_ms, step.payloads)
        case MemberSynced():
            _write_return(group, returns.resumed(group, event, step.now_ms, step.payloads), step)
        case MemberSeenAgain():
            is_silence = event.last_seen_ms != NO_TIME
            note_return = returns.silent if is_silence else returns.seen_again
            _write_return(group, note_return(group, event, step.now_ms, step.payloads), step)
        case _:
            pass


def _write_return(
    group: ClassicGroup, work_cost: tuple[Trace, moves.Cost] | None, step: Step
) -> None:
    if work_cost is not None:
        trace, cost = work_cost
        _write(group, trace, COMPLETED, cost, step)


def _removed(trace: Trace, event: MemberEvicted | MemberLeft, now_ms: int) -> RemovedMember:
    if isinstance(event, MemberEvicted):
        cause, code = event.cause.value, event.cause.name.lower()
    else:
        cause, code = _left(trace, event), LEFT
    return RemovedMember(
        event.member_id,
        event.client_id,
        event.client_host,
        cause,
        code,
        removed_at_ms=now_ms,
        last_seen_ms=event.last_seen_ms,
        heartbeat_interval_ms=event.heartbeat_interval_ms,
        client_software=event.client_software,
    )


def _left(trace: Trace, event: MemberLeft) -> str:
    """Cause of a leave in words; the reason is left out if the record of the rebalance has it."""
    began_it = trace.started.member_id == event.member_id and trace.started.reason == event.reason
    return LEFT if began_it or not event.reason else f"{LEFT} and said: {event.reason}"


def _finish(group: ClassicGroup, trace: Trace, outcome: str, step: Step) -> None:
    group.account.trace = None
    is_completed = outcome == COMPLETED
    cost = (
        moves.cost_of(group, trace, step.now_ms, step.payloads) if is_completed else moves.UNKNOWN
    )
    _write(group, trace, outcome, cost, step)


def _write(group: ClassicGroup, trace: Trace, outcome: str, cost: moves.Cost, step: Step) -> None:
    started = trace.started
    outage = trace.taken_over or NO_OUTAGE
    record = RebalanceRecord(
        group.group_id,
        cause=started.cause.value,
        outcome=outcome,
        member_id=started.member_id,
        client_id=started.client_id,
        client_host=started.client_host,
        reason=started.reason,
        generation_before=started.generation,
        generation_after=group.generation,
        protocol=trace.protocol,
        was_initial=trace.was_initial,
        started_at_ms=trace.started_at_ms,
        joined_at_ms=trace.joined_at_ms,
        synced_at_ms=trace.synced_at_ms,
        ended_at_ms=step.now_ms,
        leader=group.leader_id or "",
        member_count=len(group.members),
        members=_members(group, trace),
        removed=tuple(trace.removed[:MEMBERS_MAX]),
        removed_count=len(trace.removed),
        cooperative_round=cost.round,
        partitions_moved=cost.partitions_moved,
        partitions_taken_away=cost.partitions_taken_away,
        unowned_partitions=cost.unowned_partitions,
        unowned_ms_max=cost.unowned_ms_max,
        unowned_ms_total=cost.unowned_ms_total,
        unowned_ms_max_at_least=cost.unowned_ms_max_at_least,
        unowned_ms_total_at_least=cost.unowned_ms_total_at_least,
        moves=cost.moves,
        partitions_left_out=cost.partitions_left_out,
        taken_over_at_ms=outage.at_ms,
        silent_since_ms=outage.newest_record_ms,
        store_went_back=outage.store_went_back,
    )
    group.journal_writes += 1
    step.out.persist([record], AnnounceRebalance(record))


def _note_refused(group: ClassicGroup, event: JoinRefused, now_ms: int) -> None:
    """Remember a refused JoinGroup, for users who wonder why a client does not get in.

    Only the last few, in memory.
    """
    error = event.error
    if error not in LOGGED_REFUSALS:
        return
    key = (event.client_id, event.client_host, error)
    known = group.account.refused_joins or {}
    earlier = known.pop(key, None)
    known[key] = RefusedJoin(
        event.client_id,
        event.client_host,
        error,
        protocols=event.protocols,
        needed=tuple(sorted(group.common_protocols())),
        count=1 if earlier is None else earlier.count + 1,
        first_at_ms=now_ms if earlier is None else earlier.first_at_ms,
        last_at_ms=now_ms,
    )
    for oldest in list(known)[:-REFUSED_MAX]:
        del known[oldest]
    group.account.refused_joins = known


def list_rebalances(group: ClassicGroup, command: ListRebalances, step: Step) -> None:
    """Answer with the group's journal, newest first, when what is on its way is in it."""
    group.check_journal(command.has_waited, step.now_ms)
    refused = tuple((group.account.refused_joins or {}).values())[::-1]
    group.close_account()  # Reading it may have opened one.
    reply = RebalancesReply(rebalances=group.journal[::-1], refused_joins=refused)
    step.out.reply(command.call_id, reply)


def announce_rebalance(_: None, command: AnnounceRebalance, step: Step) -> None:
    """Emit the event of a rebalance once its record is durable."""
    if command.error is ErrorCode.NONE:
        step.out.note(RebalanceJournaled(command.record))


def _members(group: ClassicGroup, trace: Trace) -> tuple[RebalanceMember, ...]:
    joined = sorted(trace.joined.values(), key=lambda pair: pair[1])[-MEMBERS_MAX:]
    members = []
    for event, at_ms in joined:
        member = group.members.get(event.member_id)
        members.append(
            RebalanceMember(
                event.member_id,
                event.client_id,
                event.client_host,
                event.is_new,
                session_timeout_ms=member.session_timeout_ms if member else NO_TIME,
                joined_at_ms=at_ms,
                synced_at_ms=trace.synced.get(event.member_id, NO_TIME),
                client_software=event.client_software,
            )
        )
    return tuple(members)
