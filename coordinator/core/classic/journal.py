"""The rebalance journal: the cause of each rebalance, its slow members, its cost.

It follows the events of the rules, and writes one `RebalanceRecord` at the end of each rebalance,
with a write that no call waits for. The `Trace` of a running rebalance is soft state: after a
fail-over the journal covers it from the first join on.

Source: ours; questions of operators from apache/kafka KIP-1314.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.trace import Trace
from coordinator.core.errors import ErrorCode
from coordinator.core.events import (
    Event,
    JoinPhaseCompleted,
    MemberEvicted,
    MemberJoined,
    MemberLeft,
    MemberSynced,
    RebalanceCompleted,
    RebalanceFailed,
    RebalanceJournaled,
    RebalanceStarted,
    RefusedJoin,
)
from coordinator.core.ids import NO_TIME
from coordinator.core.outcome import Outcome
from coordinator.core.records import (
    GroupMetadata,
    RebalanceMember,
    RebalanceRecord,
    RemovedMember,
)
from coordinator.core.requests import JoinGroup
from coordinator.core.written import RebalanceWritten

COMPLETED, FAILED, INTERRUPTED = "completed", "failed", "interrupted"
LEFT = "left"
NO_COUNT = -1
"""Value of `partitions_moved` if it is unknown."""
MEMBERS_MAX = 64
"""Members listed in a record; of larger groups the last ones to join."""
OWNED_MAX = 50_000
"""Partitions up to which owners are compared with the previous generation, which takes 70 ms. For
more, `partitions_moved` is unknown."""
TOLD_REFUSALS = (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_MAX_SIZE_REACHED)
REFUSED_MAX = 16
"""Refused clients that are remembered per group."""
COOPERATIVE = "cooperative"
"""Part of the names of protocols whose members keep working during a rebalance (KIP-429)."""

Partition = tuple[str, int]
AssignmentReader = Callable[[bytes], Iterable[Partition] | None]
"""Injected parser of an assignment's partitions; returns None if it cannot parse it."""


def follow_all(
    groups: Mapping[str, ClassicGroup], now_ms: int, out: Outcome, read_assignment: AssignmentReader
) -> None:
    """Update the traces of all groups by the events of one command."""
    by_group: dict[str, list[Event]] = {}
    for event in out.events:
        by_group.setdefault(event.group_id, []).append(event)
    for group_id, events in by_group.items():
        group = groups.get(group_id)
        if group is not None:
            follow(group, events, now_ms, out, read_assignment)


def follow(
    group: ClassicGroup,
    events: Iterable[Event],
    now_ms: int,
    out: Outcome,
    read_assignment: AssignmentReader,
) -> None:
    """Update the trace of a group by its events; write its record at the end of a rebalance."""
    early: list[Event] = []  # Events that caused a rebalance precede its start.
    for event in events:
        match event:
            case RebalanceStarted():
                if group.trace is not None:
                    _finish(group, INTERRUPTED, now_ms, out, read_assignment)
                group.trace = Trace(
                    event, now_ms, was_initial=group.initial_join, before=group.committed
                )
                for what in early:
                    _note(group.trace, what, now_ms)
            case RebalanceCompleted() if group.trace is not None:
                _finish(group, COMPLETED, now_ms, out, read_assignment)
            case RebalanceFailed() if group.trace is not None:
                _finish(group, f"{FAILED}: {event.error}", now_ms, out, read_assignment)
            case _ if group.trace is not None:
                _note(group.trace, event, now_ms)
            case _:
                early.append(event)


def _note(trace: Trace, event: Event, now_ms: int) -> None:
    match event:
        case MemberJoined():
            trace.joined.setdefault(event.member_id, (event, now_ms))
        case MemberSynced():
            trace.synced.setdefault(event.member_id, now_ms)
            if event.is_leader and trace.synced_at_ms == NO_TIME:
                trace.synced_at_ms = now_ms
        case JoinPhaseCompleted():
            trace.joined_at_ms = now_ms
            trace.protocol = event.protocol_name
        case MemberEvicted() | MemberLeft():
            cause = event.cause.value if isinstance(event, MemberEvicted) else _left(trace, event)
            removed = RemovedMember(event.member_id, event.client_id, event.client_host, cause)
            trace.removed.append((removed, now_ms))
        case _:
            pass


def _left(trace: Trace, event: MemberLeft) -> str:
    """Cause of a leave in words; the reason is left out if the record of the rebalance has it."""
    began_it = trace.started.member_id == event.member_id and trace.started.reason == event.reason
    return LEFT if began_it or not event.reason else f"{LEFT} and said: {event.reason}"


def _finish(
    group: ClassicGroup, outcome: str, now_ms: int, out: Outcome, read_assignment: AssignmentReader
) -> None:
    trace, group.trace = group.trace, None
    assert trace is not None
    moved, unowned = _partitions(group, trace, now_ms, read_assignment, outcome == COMPLETED)
    started = trace.started
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
        ended_at_ms=now_ms,
        leader=group.leader_id or "",
        member_count=len(group.members),
        members=_members(group, trace),
        removed=tuple(removed for removed, _ in trace.removed[:MEMBERS_MAX]),
        partitions_moved=moved,
        unowned_partitions=len(unowned),
        unowned_ms_max=max(unowned, default=0),
        unowned_ms_total=sum(unowned),
    )
    out.persist([record], RebalanceWritten(record))


def note_refused_join(
    group: ClassicGroup, command: JoinGroup, error: ErrorCode, now_ms: int
) -> None:
    """Remember a refused JoinGroup, for users who wonder why a client does not get in.

    Only the last few, in memory.
    """
    if error not in TOLD_REFUSALS:
        return
    key = (command.client_id, command.client_host, error)
    known = group.refused_joins or {}
    earlier = known.pop(key, None)
    known[key] = RefusedJoin(
        command.client_id,
        command.client_host,
        error,
        protocols=tuple(name for name, _ in command.protocols),
        needed=tuple(sorted(group.common_protocols())),
        count=1 if earlier is None else earlier.count + 1,
        first_at_ms=now_ms if earlier is None else earlier.first_at_ms,
        last_at_ms=now_ms,
    )
    for oldest in list(known)[:-REFUSED_MAX]:
        del known[oldest]
    group.refused_joins = known


def rebalance_written(command: RebalanceWritten, out: Outcome) -> None:
    """Emit the event of a rebalance once its record is durable."""
    if command.error is ErrorCode.NONE:
        out.note(RebalanceJournaled(command.record))


def _members(group: ClassicGroup, trace: Trace) -> tuple[RebalanceMember, ...]:
    joined = sorted(trace.joined.values(), key=lambda pair: pair[1])[-MEMBERS_MAX:]
    found = []
    for event, at_ms in joined:
        member = group.members.get(event.member_id)
        found.append(
            RebalanceMember(
                event.member_id,
                event.client_id,
                event.client_host,
                event.is_new,
                session_timeout_ms=member.session_timeout_ms if member else NO_TIME,
                joined_at_ms=at_ms,
                synced_at_ms=trace.synced.get(event.member_id, NO_TIME),
            )
        )
    return tuple(found)


def _partitions(
    group: ClassicGroup,
    trace: Trace,
    now_ms: int,
    read_assignment: AssignmentReader,
    is_complete: bool,
) -> tuple[int, list[int]]:
    """Return the number of moved partitions, and how long each partition had no owner.

    Members of a cooperative protocol keep their partitions during a rebalance; other members stop
    when they join. Partitions still without an owner are carried over to the next rebalance, with
    their former owner: a cooperative protocol takes a partition away in one rebalance, and hands it
    out in the next one.
    """
    before = _owners(trace.before, read_assignment)
    after = _owners(group.committed if group.members else None, read_assignment)
    if before is None or after is None:
        return NO_COUNT, []
    since = group.unowned or {}
    owner = {p: name for p, (_, name) in since.items()}
    owner |= {p: name for p, (name, _) in before.items()}
    gone = {removed.member_id: at_ms for removed, at_ms in trace.removed}
    is_cooperative = COOPERATIVE in trace.protocol
    for partition, (name, member_id) in before.items():
        if member_id in gone:
            since.setdefault(partition, (gone[member_id], name))
        elif not is_cooperative:
            _, at_ms = trace.joined.get(member_id, (None, trace.started_at_ms))
            since.setdefault(partition, (at_ms, name))
        elif is_complete and partition not in after:
            since.setdefault(partition, (now_ms, name))
    if not is_complete:
        group.unowned = since or None
        return NO_COUNT, []
    moved = sum(owner[p] != name for p, (name, _) in after.items() if p in owner)
    ended = [now_ms - since[p][0] for p in after if p in since]
    group.unowned = {p: lost for p, lost in since.items() if p not in after} or None
    return moved, ended


def _owners(
    record: GroupMetadata | None, read_assignment: AssignmentReader
) -> dict[Partition, tuple[str, str]] | None:
    """Return each partition's owner: instance id (or member id), and member id."""
    owners: dict[Partition, tuple[str, str]] = {}
    for member in record.members if record is not None else ():
        partitions = read_assignment(member.assignment)
        if partitions is None:
            return None
        partitions = tuple(partitions)
        if len(owners) + len(partitions) > OWNED_MAX:
            return None
        owner = (member.instance_id or member.member_id, member.member_id)
        for partition in partitions:
            owners[partition] = owner
    return owners
