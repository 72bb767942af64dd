"""Decides when plans are made, and which of their moves begin.

A plan is due a fixed window after the first event that requests one; it considers everything that
has happened by then. Partitions without a holder, leavers and operators' commands are urgent: they
wait for the window alone. Arrivals wait until none has come for a while; everything else waits for
the interval since the last plan.

A plan of many partitions is computed outside of the shard, and its result is applied in slices.
Until that is done no other plan runs; requests that come meanwhile are planned next.
"""

from __future__ import annotations

from coordinator.core.config import GroupConfig
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import budget, phases, successors
from coordinator.core.sessions.plan import applying, plan_input
from coordinator.core.sessions.plan.allocator import plan
from coordinator.core.sessions.plan_draft import Draft
from coordinator.core.sessions.planning import PlanInProgress, Planning
from coordinator.core.step import Step
from coordinator.core.values.commands import NoFollowUp, PlanComputed, PlanDue
from coordinator.core.values.effects import DeferPlan
from coordinator.core.values.events import PlanFailed
from coordinator.core.values.ids import NO_TIME, TopicPartition
from coordinator.core.values.plans import MoveReason, Numbered, Plan

PLANNED_AT_ONCE = 5_000
"""Partitions of a group that is planned within a step: some 5 ms. More are planned outside."""
JOURNAL_DELAY_MS = 1_000
"""Time in which partitions that go on without a plan are one entry of the journal."""
RETRY_MS, MAX_RETRY_MS = 1_000, 60_000
"""Time until a plan that the planner has failed to make is tried again; doubles each time."""


def request_plan(group: SessionGroup, step: Step) -> None:
    """Request a plan for a change that can wait for the interval since the last one."""
    planning = group.planning
    if planning.requested_at_ms == NO_TIME:
        planning.requested_at_ms = step.now_ms
    if planning.urgent_at_ms == NO_TIME and (planning.has_grown or planning.unplaced):
        planning.urgent_at_ms = step.now_ms  # Somebody may have what nobody holds.
    arm(group, step)


def request_plan_now(group: SessionGroup, step: Step) -> None:
    """Request a plan after the window alone: for a free partition, a leaver, or an operator."""
    planning = group.planning
    if planning.urgent_at_ms == NO_TIME:
        planning.urgent_at_ms = step.now_ms
    request_plan(group, step)


def request_plan_for_arrival(group: SessionGroup, step: Step) -> None:
    """Request a plan for a member that has attached, or may receive partitions from now on."""
    planning = group.planning
    if planning.arrived_first_ms == NO_TIME:
        planning.arrived_first_ms = step.now_ms
    planning.arrived_at_ms = step.now_ms
    request_plan(group, step)


def journal_returns(group: SessionGroup, step: Step) -> None:
    """Schedule a journal entry for partitions that were granted again without a plan."""
    planning = group.planning
    if planning.journal_at_ms == NO_TIME and not planning.draft.is_empty:
        planning.returned_at_ms, planning.journal_at_ms = (
            step.now_ms,
            step.now_ms + JOURNAL_DELAY_MS,
        )
        arm(group, step)


def arm(group: SessionGroup, step: Step) -> None:
    """Set the timer of the next plan; not while one is computed, whose result sets it."""
    due_ms = due(group, step.config)
    if due_ms != NO_TIME:
        step.out.defer(DeferPlan(group.group_id, due_ms))


def due(group: SessionGroup, config: GroupConfig) -> int:
    """Time at which the next plan, or slice of one, is due, epoch milliseconds; NO_TIME: none."""
    planning = group.planning
    if planning.computing is not None:
        return NO_TIME
    if planning.applying is not None:
        return max(planning.applying.next_ms, group.grants_from_ms)
    planned_ms = _planned_ms(group, config)
    times = [at_ms for at_ms in (planned_ms, planning.journal_at_ms) if at_ms != NO_TIME]
    return min(times, default=NO_TIME)


def _planned_ms(group: SessionGroup, config: GroupConfig) -> int:
    planning = group.planning
    calls = [
        at_ms for at_ms in (_due_by_calls(group, config), planning.waits_until_ms) if at_ms >= 0
    ]
    held_until_ms = max(planning.retry_at_ms, group.grants_from_ms)
    return max(min(calls), held_until_ms) if calls else NO_TIME


def _due_by_calls(group: SessionGroup, config: GroupConfig) -> int:
    planning = group.planning
    if planning.requested_at_ms == NO_TIME:
        return NO_TIME
    policy = group.policy
    window_ms = policy.plan_window_ms
    if planning.planned_at_ms == NO_TIME:
        return _first(group, config)
    if planning.urgent_at_ms != NO_TIME:
        return planning.urgent_at_ms + window_ms
    due_ms = planning.requested_at_ms + window_ms
    if planning.arrived_first_ms != NO_TIME:
        quiet_ms = planning.arrived_at_ms + policy.join_quiet_ms
        latest_ms = planning.arrived_first_ms + policy.join_window_ms
        due_ms = max(due_ms, min(quiet_ms, latest_ms))
    return max(due_ms, planning.planned_at_ms + policy.plan_interval_ms)


def _first(group: SessionGroup, config: GroupConfig) -> int:
    """The first plan of a group, or of an owner of its shard."""
    planning = group.planning
    policy = group.policy
    window_ms = planning.requested_at_ms + policy.plan_window_ms
    if planning.restored_at_ms != NO_TIME:
        if _all_have_attached(group):
            return window_ms
        return max(window_ms, planning.all_by_ms)
    if 0 < policy.expected_members <= len(group.members):
        ready = sum(member.receives for member in group.members.values())
        if ready >= policy.expected_members:
            return window_ms
    delay_ms = policy.initial_delay_ms
    if delay_ms is None:
        delay_ms = config.group_initial_rebalance_delay_ms
    return max(window_ms, planning.requested_at_ms + delay_ms)


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


def restored(group: SessionGroup, step: Step) -> None:
    """Schedule the first plan after a load: when all members have attached, or their time is up."""
    planning = group.planning
    planning.restored_at_ms = step.now_ms
    budget.restore(group)
    if group.members:
        planning.awaited = list(group.members)
        leases = (member.lease_ms for member in group.members.values())
        planning.all_by_ms = step.now_ms + max(leases)
        request_plan(group, step)


def forget(group: SessionGroup) -> None:
    """Reset the planning of an empty group; the result of a running computation is ignored."""
    planning = group.planning
    group.planning = Planning(number=planning.number, waits_until_ms=planning.waits_until_ms)


# --- A plan ---


def run(group: SessionGroup, _: PlanDue, step: Step) -> None:
    """A plan is due: compute it here or outside of the shard, and start applying it."""
    due_ms = due(group, step.config)
    if due_ms == NO_TIME:
        return
    if due_ms > step.now_ms:
        arm(group, step)
        return
    planning = group.planning
    if planning.applying is not None:
        _go_on(group, planning.applying, step)
        return
    planned_ms = _planned_ms(group, step.config)
    if planned_ms == NO_TIME or planned_ms > step.now_ms:
        _journal_returns(group, step)
        arm(group, step)
        return
    group.journal.plan()
    planning.called_at_ms = (
        step.now_ms if planning.requested_at_ms == NO_TIME else planning.requested_at_ms
    )
    planning.requested_at_ms = planning.urgent_at_ms = NO_TIME
    planning.arrived_first_ms = planning.arrived_at_ms = NO_TIME
    planning.planned_at_ms, planning.restored_at_ms = step.now_ms, NO_TIME
    planning.has_grown = False
    _end_waits(group, step.now_ms)
    state, numbered = plan_input.input_of(group, step.now_ms)
    if planning.partitions > PLANNED_AT_ONCE:
        planning.number += 1
        planning.computing = numbered
        step.out.compute(group.group_id, planning.number, state)
        return
    try:
        made = plan(state)
    except Exception as error:  # noqa: BLE001  # A bug of the planner stops no lease and no commit.
        _failed(group, f"{type(error).__name__}: {error}", step)
    else:
        _apply(group, made, numbered, step)


def computed(group: SessionGroup, done: PlanComputed, step: Step) -> None:
    """A plan was computed outside of the shard, or could not be."""
    planning = group.planning
    numbered = planning.computing
    if numbered is None or done.number != planning.number:
        return  # The group has become another one meanwhile.
    planning.computing = None
    if done.plan is None:
        _failed(group, done.error, step)
    elif not group.may_grant(step.now_ms):
        request_plan_now(group, step)  # It was computed before that was known.
    else:
        _apply(group, done.plan, numbered, step)


def _apply(group: SessionGroup, made: Plan, numbered: Numbered, step: Step) -> None:
    planning = group.planning
    planning.failures, planning.retry_at_ms = 0, NO_TIME
    _go_on(group, applying.begin(group, made, numbered, step.now_ms), step)


def _go_on(group: SessionGroup, rest: PlanInProgress, step: Step) -> None:
    """Apply the next slice of the plan in progress."""
    if applying.go_on(group, rest, step):
        rest.next_ms = step.now_ms + 1
    else:
        group.planning.applying = None
        members = len(rest.numbered.member_ids)
        _journal(group, rest.draft, rest.made_at_ms, members, step)
        open_next(group, step)
        if rest.is_stale:
            request_plan_now(group, step)
    arm(group, step)


def _journal_returns(group: SessionGroup, step: Step) -> None:
    """Journal grants without a plan, unless the next plan's record will include them."""
    planning = group.planning
    planning.journal_at_ms = NO_TIME
    if planning.requested_at_ms != NO_TIME:
        return
    group.journal.plan()
    planning.called_at_ms = planning.returned_at_ms
    _journal(group, planning.take_draft(), step.now_ms, len(group.members), step)


def _journal(group: SessionGroup, draft: Draft, made_at_ms: int, members: int, step: Step) -> None:
    record = draft.record(
        group.journal,
        group_id=group.group_id,
        called_at_ms=group.planning.called_at_ms,
        made_at_ms=made_at_ms,
        member_count=members,
        partition_count=sum(group.declared().values()),
        partly_declared=group.declarations.partly(
            (member.member_id, member.declaration) for member in group.members.values()
        ),
        refusing_members=len(
            {
                name
                for state in group.partition_states.values()
                if state.refusals is not None
                for name, back_off in state.refusals.by_name.items()
                if back_off.lasts
            }
        ),
    )
    group.journal.planned()
    if record is not None and step.config.group_rebalance_journal:
        group.journal_writes += 1
        step.out.persist((record,), NoFollowUp(group.group_id))


def _failed(group: SessionGroup, error: str, step: Step) -> None:
    """A computation failed: keep all holdings, and retry the plan later."""
    planning = group.planning
    planning.failures += 1
    wait_ms = min(MAX_RETRY_MS, RETRY_MS << min(planning.failures - 1, 10))
    planning.retry_at_ms = step.now_ms + wait_ms
    step.out.note(PlanFailed(group.group_id, planning.failures, error))
    request_plan_now(group, step)


def _end_waits(group: SessionGroup, now_ms: int) -> None:
    """End back-offs and delays of partitions that are over, and find the end of the next."""
    names = {member.name for member in group.members.values()}
    ends: list[int] = []
    for partition in list(group.partition_states):
        ends += group.partition_states[partition].end_waits(now_ms, names)
        group.drop_if_empty(partition)
    group.planning.waits_until_ms = min(ends, default=NO_TIME)


# --- Its moves ---


def open_next(group: SessionGroup, step: Step) -> None:
    """Open the hand-offs of the last plan; for balancing, as many as the budget allows.

    A member without a stream is asked for nothing, and given nothing.
    """
    planning = group.planning
    if not planning.targets and not planning.balancing:
        return
    budget_left, waiting = budget.Budget(group), planning.waiting
    loads = successors.Loads(group)
    for partition in budget_left.ready[: max(0, budget_left.draining)]:
        phases.reconcile(group, partition, step)
    done = []
    full: set[str] = set()
    for partition, (target, reason) in planning.targets.items():
        holder = group.members.get(group.holder(partition))
        if group.handoff(partition) is not None or group.partition_state(partition).writes_pending:
            continue
        if holder is None or holder.is_ended or holder.member_id == target:
            done.append(partition)
        elif target and not _may_begin(group, partition, target, loads):
            done.append(partition)  # Its receiver has changed, or was given others.
            request_plan(group, step)
        elif holder.is_suspect:
            continue
        elif reason is not MoveReason.BALANCE or budget_left.admits(target):
            done.append(partition)
            if reason is MoveReason.BALANCE:
                budget_left.take(target)
                planning.balancing[partition] = target
            phases.open_one(group, partition, target, step, reason.value)
            if target:
                loads.add(partition, target)
        else:
            full.add(target)
            if len(full) >= len(waiting) or not budget_left.is_warm:
                break  # Moves of balancing come last.
    for partition in done:
        target, _ = planning.targets.pop(partition)
        waiting[target] -= 1
        if waiting[target] <= 0:
            del waiting[target]


def _may_begin(
    group: SessionGroup, partition: TopicPartition, target: str, loads: successors.Loads
) -> bool:
    return (
        successors.may_get(group, partition, target)
        and loads.capacity_of(group.members[target]) > 0
    )
