"""A session group that was read from the log: full leases and full phases, from now."""

from __future__ import annotations

from coordinator.core.sessions import lease, pruning, reconciling, stops
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases
from coordinator.core.sessions.leave import leaving
from coordinator.core.sessions.plan import scheduler
from coordinator.core.step import Step
from coordinator.core.values.ids import NO_TIME
from coordinator.core.values.plan_journal import TriggerCause


def restore(group: SessionGroup, grace_ms: int, step: Step) -> None:
    """Serve a group that was read from the log.

    Args:
        grace_ms: time beyond its lease that each member gets; see `lease.grace_ms`.
    """
    group.journal.begin()
    group.journal.note(TriggerCause.FAIL_OVER)
    if step.numbers.grants_from_ms != NO_TIME:
        group.journal.note(TriggerCause.STORE_WENT_BACK)
        group.grants_from_ms = step.numbers.grants_from_ms
    pruning.give_back(group)
    group.newcomers.clear()
    group.planning.last_record_ms = stops.last_record_ms(group)
    for member in group.members.values():
        lease.restore(group, member, grace_ms, step)
        if member.record.evicted:
            for partition in list(group.partitions_of(member.member_id)):
                phases.reconcile(group, partition, step)
    if group.policy.handover_delay_ms:
        _delay_free(group, step.now_ms)
    for partition, _ in list(group.open_handoffs()):
        phases.restore(group, partition, step)
    for member in group.members.values():
        leaving.restore(group, member, step)
    for name in group.reserved_names:
        leaving.keep(group, name, step)
    group.state = group.current_state()
    scheduler.restored(group, step)
    reconciling.reconcile(group, step)


def _delay_free(group: SessionGroup, now_ms: int) -> None:
    """Delay grants of free partitions as after a lease's end: how it ended is not known.

    A member that has announced to return has stopped, and gets what is reserved for it at once.
    """
    for name, topic in group.topics.items():
        for partition, holder in enumerate(topic.holders):
            reservation = topic.reserved.get(partition)
            if not holder and (reservation is None or reservation.is_delayed):
                state = group.state_to_change((name, partition))
                state.not_before_ms = now_ms + group.policy.handover_delay_ms
