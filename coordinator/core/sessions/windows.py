"""Timing of plans, and the choice of moves that begin.

A plan is due a fixed window after the first event that calls for one; it takes in everything that
has happened by then. Partitions without a holder, leavers and operators' commands are urgent: they
wait for the window alone. Arrivals wait until none has come for a while; everything else waits for
the interval since the last plan.

A plan of many partitions is computed outside of the shard, and its result is taken in slices. Until
that is done no other plan runs; what calls for one meanwhile is planned next.
"""

from __future__ import annotations

from typing import TypeVar

from coordinator.core.config import GroupConfig
from coordinator.core.events import PlanFailed
from coordinator.core.ids import NO_TIME, Place
from coordinator.core.outcome import DeferPlan, Outcome
from coordinator.core.session_values.commands import PlanComputed
from coordinator.core.session_values.plans import MoveReason, Numbered, Plan
from coordinator.core.sessions import budget, plan_input, successors, taking
from coordinator.core.sessions import handoff as handoffs
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.numbers import Numbers
from coordinator.core.sessions.plan.allocator import plan
from coordinator.core.sessions.plan_journal import Draft
from coordinator.core.sessions.planning import Planning, Taking
from coordinator.core.written import Unawaited

T = TypeVar("T")
PLANNED_AT_ONCE = 5_000
"""Partitions of a group that is planned within a step: some 5 ms. More are planned outside."""
TELL_MS = 1_000
"""Time in which partitions that go on without a plan are one entry of the journal."""
RETRY_MS, MAX_RETRY_MS = 1_000, 60_000
"""Time until a plan that the planner has failed to make is tried again; doubles each time."""


def call(group: SessionGroup, now_ms: int, out: Outcome, config: GroupConfig) -> None:
    """Something has changed that a plan may have to answer."""
    if group.call_at_ms == NO_TIME:
        group.call_at_ms = now_ms
    if group.urgent_at_ms == NO_TIME and (group.planning.has_grown or group.unplaced):
        group.urgent_at_ms = now_ms  # Somebody may have what nobody holds.
    arm(group, out, config)


def call_urgently(group: SessionGroup, now_ms: int, out: Outcome, config: GroupConfig) -> None:
    """A partition is free, a member leaves, or an operator commands."""
    if group.urgent_at_ms == NO_TIME:
        group.urgent_at_ms = now_ms
    call(group, now_ms, out, config)


def call_for_arrival(group: SessionGroup, now_ms: int, out: Outcome, config: GroupConfig) -> None:
    """A member has come, or may receive from now on."""
    if group.arrived_first_ms == NO_TIME:
        group.arrived_first_ms = now_ms
    group.arrived_at_ms = now_ms
    call(group, now_ms, out, config)


def tell(group: SessionGroup, now_ms: int, out: Outcome, config: GroupConfig) -> None:
    """Have it journaled soon that partitions went on without a plan, with those that follow."""
    planning = group.planning
    if planning.tell_at_ms == NO_TIME and not planning.draft.is_empty:
        planning.returned_at_ms, planning.tell_at_ms = now_ms, now_ms + TELL_MS
        arm(group, out, config)


def arm(group: SessionGroup, out: Outcome, config: GroupConfig) -> None:
    """Set the timer of the next plan; not while one is computed, whose result sets it."""
    due_ms = due(group, config)
    if due_ms != NO_TIME:
        out.defer(DeferPlan(group.group_id, due_ms))


def due(group: SessionGroup, config: GroupConfig) -> int:
    """Time at which the next plan, or slice of one, is due, epoch milliseconds; NO_TIME: none."""
    planning = group.planning
    if planning.computing is not None:
        return NO_TIME
    if planning.taking is not None:
        return max(planning.taking.next_ms, group.grants_from_ms)
    planned_ms = _planned_ms(group, config)
    times = [at_ms for at_ms in (planned_ms, planning.tell_at_ms) if at_ms != NO_TIME]
    return min(times, default=NO_TIME)


def _planned_ms(group: SessionGroup, config: GroupConfig) -> int:
    calls = [at_ms for at_ms in (_due_by_calls(group, config), group.waits_until_ms) if at_ms >= 0]
    held_until_ms = max(group.planning.retry_at_ms, group.grants_from_ms)
    return max(min(calls), held_until_ms) if calls else NO_TIME


def _due_by_calls(group: SessionGroup, config: GroupConfig) -> int:
    if group.call_at_ms == NO_TIME:
        return NO_TIME
    policy = group.policy
    window_ms = policy.plan_window_ms
    if group.planned_at_ms == NO_TIME:
        return _first(group, config)
    if group.urgent_at_ms != NO_TIME:
        return group.urgent_at_ms + window_ms
    due_ms = group.call_at_ms + window_ms
    if group.arrived_first_ms != NO_TIME:
        quiet_ms = group.arrived_at_ms + policy.join_quiet_ms
        latest_ms = group.arrived_first_ms + policy.join_window_ms
        due_ms = max(due_ms, min(quiet_ms, latest_ms))
    return max(due_ms, group.planned_at_ms + policy.plan_interval_ms)


def _first(group: SessionGroup, config: GroupConfig) -> int:
    """The first plan of a group, or of an owner of its shard."""
    policy = group.policy
    window_ms = group.call_at_ms + policy.plan_window_ms
    if group.restored_at_ms != NO_TIME:
        if _all_have_attached(group):
            return window_ms
        return max(window_ms, group.planning.all_by_ms)
    if 0 < policy.expected_members <= len(group.members):
        ready = sum(member.receives for member in group.members.values())
        if ready >= policy.expected_members:
            return window_ms
    delay_ms = policy.initial_delay_ms
    if delay_ms is None:
        delay_ms = config.group_initial_rebalance_delay_ms
    return max(window_ms, group.call_at_ms + delay_ms)


def _all_have_attached(group: SessionGroup) -> bool:
    """True if all members of the log have attached to this owner, or their end is durable.

    It looks at each of them once, however often it is asked.
    """
    awaited = group.planning.awaited
    while awaited:
        member = group.members.get(awaited[-1])
        if member is not None and member.is_suspect:
            return False
        awaited.pop()
    return True


def restored(group: SessionGroup, now_ms: int, out: Outcome, config: GroupConfig) -> None:
    """The group was read from the log: plan when its members have attached, or could have."""
    group.restored_at_ms = now_ms
    budget.restore(group)
    if group.members:
        group.planning.awaited = list(group.members)
        leases = (member.lease_ms for member in group.members.values())
        group.planning.all_by_ms = now_ms + max(leases)
        call(group, now_ms, out, config)


def forget(group: SessionGroup) -> None:
    """The group is empty: the next member is the first again. A plan on its way is ignored."""
    group.planning = Planning(number=group.planning.number)
    group.targets.clear()
    group.unplaced = {}
    group.call_at_ms = group.urgent_at_ms = NO_TIME
    group.arrived_first_ms = group.arrived_at_ms = NO_TIME
    group.planned_at_ms = group.restored_at_ms = NO_TIME


# --- A plan ---


def run(
    group: SessionGroup, now_ms: int, numbers: Numbers, out: Outcome, config: GroupConfig
) -> None:
    """The time of a plan has come: make it, or have it made, and begin what it says."""
    due_ms = due(group, config)
    if due_ms == NO_TIME:
        return
    if due_ms > now_ms:
        arm(group, out, config)
        return
    planning = group.planning
    if planning.taking is not None:
        _go_on(group, planning.taking, now_ms, numbers, out, config)
        return
    planned_ms = _planned_ms(group, config)
    if planned_ms == NO_TIME or planned_ms > now_ms:
        _tell(group, now_ms, out, config)
        arm(group, out, config)
        return
    group.journal.plan()
    planning.called_at_ms = now_ms if group.call_at_ms == NO_TIME else group.call_at_ms
    group.call_at_ms = group.urgent_at_ms = NO_TIME
    group.arrived_first_ms = group.arrived_at_ms = NO_TIME
    group.planned_at_ms, group.restored_at_ms = now_ms, NO_TIME
    planning.has_grown = False
    _end_waits(group, now_ms)
    state, numbered = plan_input.input_of(group, now_ms)
    if planning.partitions > PLANNED_AT_ONCE:
        planning.number += 1
        planning.computing = numbered
        out.compute(group.group_id, planning.number, state)
        return
    try:
        made = plan(state)
    except Exception as error:  # noqa: BLE001  # A bug of the planner stops no lease and no commit.
        _failed(group, f"{type(error).__name__}: {error}", now_ms, out, config)
    else:
        _take(group, made, numbered, now_ms, numbers, out, config)


def computed(
    group: SessionGroup,
    done: PlanComputed,
    now_ms: int,
    numbers: Numbers,
    out: Outcome,
    config: GroupConfig,
) -> None:
    """A plan was computed outside of the shard, or could not be."""
    planning = group.planning
    numbered = planning.computing
    if numbered is None or done.number != planning.number:
        return  # The group has become another one meanwhile.
    planning.computing = None
    if done.plan is None:
        _failed(group, done.error, now_ms, out, config)
    elif not group.may_grant(now_ms):
        call_urgently(group, now_ms, out, config)  # It was computed before that was known.
    else:
        _take(group, done.plan, numbered, now_ms, numbers, out, config)


def _take(
    group: SessionGroup,
    made: Plan,
    numbered: Numbered,
    now_ms: int,
    numbers: Numbers,
    out: Outcome,
    config: GroupConfig,
) -> None:
    planning = group.planning
    planning.failures, planning.retry_at_ms = 0, NO_TIME
    _go_on(group, taking.begin(group, made, numbered, now_ms), now_ms, numbers, out, config)


def _go_on(
    group: SessionGroup,
    rest: Taking,
    now_ms: int,
    numbers: Numbers,
    out: Outcome,
    config: GroupConfig,
) -> None:
    """Take a slice of a plan."""
    if taking.go_on(group, rest, now_ms, numbers, out):
        rest.next_ms = now_ms + 1
    else:
        group.planning.taking = None
        members = len(rest.numbered.member_ids)
        _journal(group, rest.draft, rest.made_at_ms, members, out, config)
        open_next(group, now_ms, numbers, out)
        if rest.is_stale:
            call_urgently(group, now_ms, out, config)
    arm(group, out, config)


def _tell(group: SessionGroup, now_ms: int, out: Outcome, config: GroupConfig) -> None:
    """Journal what went on without a plan, unless the next plan is to tell of it."""
    planning = group.planning
    planning.tell_at_ms = NO_TIME
    if group.call_at_ms != NO_TIME:
        return
    group.journal.plan()
    planning.called_at_ms = planning.returned_at_ms
    _journal(group, planning.take_draft(), now_ms, len(group.members), out, config)


def _journal(
    group: SessionGroup,
    draft: Draft,
    made_at_ms: int,
    members: int,
    out: Outcome,
    config: GroupConfig,
) -> None:
    record = draft.record(
        group.group_id,
        group.journal,
        called_at_ms=group.planning.called_at_ms,
        made_at_ms=made_at_ms,
        members=members,
        partitions=sum(group.declared().values()),
        partly_declared=group.declarations.partly(
            (member.member_id, member.declaration) for member in group.members.values()
        ),
    )
    group.journal.planned()
    if record is not None and config.group_rebalance_journal:
        group.journal_writes += 1
        out.persist((record,), Unawaited(group.group_id))


def _failed(
    group: SessionGroup, error: str, now_ms: int, out: Outcome, config: GroupConfig
) -> None:
    """Nothing is taken from anybody: what is held stays, and the plan is tried again later."""
    planning = group.planning
    planning.failures += 1
    wait_ms = min(MAX_RETRY_MS, RETRY_MS << min(planning.failures - 1, 10))
    planning.retry_at_ms = now_ms + wait_ms
    out.note(PlanFailed(group.group_id, planning.failures, error))
    call_urgently(group, now_ms, out, config)


def _end_waits(group: SessionGroup, now_ms: int) -> None:
    """End back-offs and delays that are over, and find the end of the next.

    The length of a back-off is remembered, because the next one is twice as long; not of a member
    that is gone.
    """
    for place in [place for place, until_ms in group.not_before.items() if until_ms <= now_ms]:
        del group.not_before[place]
    _end_back_offs(group.back_offs, now_ms)
    if group.back_offs:
        names = {member.name for member in group.members.values()}
        for key, (until_ms, _) in list(group.back_offs.items()):
            if until_ms == NO_TIME and key[1] not in names:
                del group.back_offs[key]
    _end_back_offs(group.backed_off, now_ms)
    ends = [*group.not_before.values(), *(until for until, _ in group.backed_off.values())]
    ends += [until for until, _ in group.back_offs.values()]
    group.waits_until_ms = min((end for end in ends if end != NO_TIME), default=NO_TIME)


def _end_back_offs(table: dict[T, tuple[int, int]], now_ms: int) -> None:
    for key, (until_ms, length_ms) in table.items():
        if NO_TIME < until_ms <= now_ms:
            table[key] = NO_TIME, length_ms


# --- Its moves ---


def open_next(group: SessionGroup, now_ms: int, numbers: Numbers, out: Outcome) -> None:
    """Open the hand-offs that the last plan wants, of balancing as many as the budget allows.

    A member without a stream is asked for nothing, and given nothing.
    """
    if not group.targets and not group.planning.balancing:
        return
    room, waiting = budget.Budget(group), group.planning.waiting
    loads = successors.Loads(group)
    for place in room.ready[: max(0, room.draining)]:
        handoffs.reconcile(group, place, now_ms, numbers, out)
    done = []
    full: set[str] = set()
    for place, (target, reason) in group.targets.items():
        holder = group.members.get(group.holder(place))
        if place in group.in_flight or group.handoff(place) is not None:
            continue
        if holder is None or holder.is_ended or holder.member_id == target:
            done.append(place)
        elif target and not _may_begin(group, place, target, loads):
            done.append(place)  # Planned again: its receiver has changed, or was given others.
        elif holder.is_suspect:
            continue
        elif reason is not MoveReason.BALANCE or room.admits(target):
            done.append(place)
            if reason is MoveReason.BALANCE:
                room.take(target)
                group.planning.balancing[place] = target
            handoffs.open_one(group, place, target, now_ms, numbers, out, reason.value)
            if target:
                loads.add(place, target)
        else:
            full.add(target)
            if len(full) >= len(waiting) or not room.is_warm:
                break  # Moves of balancing come last.
    for place in done:
        target, _ = group.targets.pop(place)
        waiting[target] -= 1
        if waiting[target] <= 0:
            del waiting[target]


def _may_begin(group: SessionGroup, place: Place, target: str, loads: successors.Loads) -> bool:
    return successors.may_get(group, place, target) and loads.room_of(group.members[target]) > 0
