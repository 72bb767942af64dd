"""Hand-offs: the way of one partition from one holder to the next.

    FREE ──grant──► HELD ──► DRAIN ──released, or its holder gone──► HELD by the successor
                     │         ▲  └─ time is up ─► FORCED ──ack, or a lease later──► the same
                     └► PREPARE┘                   COPY: DRAIN, released ─► COPY ──ready──► the same

Each partition converges alone. `reconcile` looks at its durable phase and at what its members have
said since, and writes the one record that follows of it; while that record is in flight it does
nothing, and it looks again when the write is resolved. So it is safe to call at any time, and
whoever learns something about a partition calls it.

A drain that was ordered is never taken back. No change of successor gives a phase more time.
"""

from __future__ import annotations

from coordinator.core.sessions import stops
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import budget, successors
from coordinator.core.sessions.handoff import transitions as to
from coordinator.core.sessions.holdings import Handoff
from coordinator.core.sessions.member import SessionMember
from coordinator.core.step import Numbers, Step
from coordinator.core.values.commands import NoFollowUp, PhaseOverdue, ReviewPartitions
from coordinator.core.values.effects import DeferPhase, DeferRetry
from coordinator.core.values.ids import NO_TIME, TopicPartition
from coordinator.core.values.plan_journal import HandoffOutcome
from coordinator.core.values.policy import Mode
from coordinator.core.values.records import EndCause, PartitionSwitched, Phase, PhaseEntered, Record

DRAINING = (Phase.DRAIN, Phase.FORCED)
HandoffDecision = PhaseEntered | PartitionSwitched
"""Record of what follows for a partition."""
RETRY_MS = 1_000
"""Time until a record that the log has refused is decided again. One that it could not reach is
retried by the shard itself."""


def open_one(
    group: SessionGroup, partition: TopicPartition, successor: str, step: Step, reason: str = ""
) -> None:
    """Begin to take a partition from its holder; `successor` may be empty."""
    assert not group.partition_state(partition).writes_pending
    is_warm = group.policy.mode is Mode.WARM and successor
    phase = Phase.PREPARE if is_warm else Phase.DRAIN
    record = to.begin(group, partition, phase, successor, step.now_ms, step.numbers, reason)
    _write(group, partition, record, step)


def redirect(group: SessionGroup, partition: TopicPartition, successor: str, step: Step) -> None:
    """Give a partition that is being drained another successor. Its time stays as it is.

    Not back to its holder: that one may get it under a new token, after its release.
    """
    handoff = group.handoff(partition)
    assert handoff is not None
    assert handoff.phase in DRAINING
    if successor != handoff.source:
        _write(group, partition, to.redirect(group, partition, handoff, successor), step)


def reconcile(group: SessionGroup, partition: TopicPartition, step: Step) -> None:
    """Decide what follows for one partition, if anything does.

    Nothing while a record of it is in flight, nor until the retry of one that was refused.
    """
    state = group.partition_state(partition)
    if state.writes_pending or partition in group.refused_writes:
        return
    record = decide(group, partition, step.now_ms, step.numbers)
    if record is None:
        return
    if isinstance(record, PartitionSwitched) and group.holder(partition):
        if state.release is None and record.line is not None and record.line.stop:
            stops.force(group, partition, record.line.stop)
            _delay(group, partition, step.now_ms)
    _write(group, partition, record, step)


def _delay(group: SessionGroup, partition: TopicPartition, now_ms: int) -> None:
    """Delay the next grant after a holder's end without consent."""
    delay_ms = group.policy.handover_delay_ms
    if delay_ms and not group.policy.sinks_check_tokens:
        group.state_to_change(partition).not_before_ms = now_ms + delay_ms


def decide(
    group: SessionGroup, partition: TopicPartition, now_ms: int, numbers: Numbers
) -> HandoffDecision | None:
    """The record that a partition's phase and transient state require next; None: none."""
    handoff = group.handoff(partition)
    is_released = group.partition_state(partition).release is not None
    if not is_released and _must_stop(group, partition):
        if handoff is None:
            return to.begin(group, partition, Phase.FORCED, "", now_ms, numbers)
        if handoff.phase is not Phase.FORCED:
            return to.go_on(group, partition, handoff, Phase.FORCED, now_ms)
    if handoff is None:
        return to.switch(group, partition, "", now_ms, numbers) if is_released else None
    match handoff.phase:
        case Phase.PREPARE:
            return _decide_prepare(group, partition, handoff, now_ms, numbers)
        case Phase.DRAIN:
            return _decide_drain(group, partition, handoff, now_ms, numbers)
        case Phase.COPY:
            return _decide_copy(group, partition, handoff, now_ms, numbers)
    return _decide_forced(group, partition, handoff, now_ms, numbers)


def _must_stop(group: SessionGroup, partition: TopicPartition) -> bool:
    """True if the holder is being evicted, or the deadline of its Leave(DRAIN) has passed."""
    holder = group.members.get(group.holder(partition))
    if holder is None:
        return False
    return holder.record.evicted or holder.must_stop


def _decide_prepare(
    group: SessionGroup, partition: TopicPartition, handoff: Handoff, now_ms: int, numbers: Numbers
) -> HandoffDecision | None:
    if group.partition_state(partition).release is not None:
        return to.switch(group, partition, handoff.successor, now_ms, numbers)
    if (handoff.is_ready and budget.may_drain(group, partition)) or (
        handoff.is_overdue and _leaves(group, handoff.source)
    ):
        return to.go_on(group, partition, handoff, Phase.DRAIN, now_ms)
    is_late = handoff.is_overdue and not handoff.is_ready
    if is_late or not _is_fit(group, partition, handoff):
        another = successors.choose(group, partition, but={handoff.source, handoff.successor})
        if not another:
            return to.give_up(group, partition, handoff, now_ms)
        return to.prepare_another(group, partition, handoff, another, now_ms, numbers)
    return None


def _decide_drain(
    group: SessionGroup, partition: TopicPartition, handoff: Handoff, now_ms: int, numbers: Numbers
) -> HandoffDecision | None:
    if group.partition_state(partition).release is not None:
        return _pass_on(group, partition, handoff, now_ms, numbers)
    if handoff.is_overdue:
        return to.go_on(group, partition, handoff, Phase.FORCED, now_ms)
    return _choose_another(group, partition, handoff)


def _decide_forced(
    group: SessionGroup, partition: TopicPartition, handoff: Handoff, now_ms: int, numbers: Numbers
) -> HandoffDecision | None:
    state = group.partition_state(partition)
    if state.release is not None:
        successor = handoff.successor if state.not_before_ms == NO_TIME else ""
        return to.switch(group, partition, successor, now_ms, numbers)
    is_checked = group.policy.sinks_check_tokens
    if is_checked or handoff.is_overdue:
        waits = group.policy.handover_delay_ms and not is_checked
        successor = "" if waits else handoff.successor
        stop = stops.stop_by_force(group, partition, now_ms)
        outcome = HandoffOutcome.FORCED
        return to.switch(group, partition, successor, now_ms, numbers, outcome, stop)
    return _choose_another(group, partition, handoff)


def _choose_another(
    group: SessionGroup, partition: TopicPartition, handoff: Handoff
) -> HandoffDecision | None:
    """Choose another successor for a drain whose successor is gone or no longer allowed."""
    if not handoff.successor or _is_fit(group, partition, handoff):
        return None
    another = successors.choose(group, partition, but={handoff.source})
    return to.redirect(group, partition, handoff, another)


def _decide_copy(
    group: SessionGroup, partition: TopicPartition, handoff: Handoff, now_ms: int, numbers: Numbers
) -> HandoffDecision | None:
    if handoff.is_ready:
        return to.switch(group, partition, handoff.successor, now_ms, numbers)
    if not handoff.is_overdue and _is_fit(group, partition, handoff):
        return None
    another = successors.choose(group, partition, but={handoff.successor})
    if not another:
        return to.switch(group, partition, "", now_ms, numbers)
    return to.prepare_another(group, partition, handoff, another, now_ms, numbers)


def _pass_on(
    group: SessionGroup,
    partition: TopicPartition,
    handoff: Handoff,
    now_ms: int,
    numbers: Numbers,
    outcome: HandoffOutcome = HandoffOutcome.RELEASED,
) -> HandoffDecision:
    """Switch a drained partition: its holder released it or is gone."""
    if handoff.phase is Phase.DRAIN and handoff.mode is Mode.COPY:
        successor = handoff.successor
        if not successors.may_get(group, partition, successor):
            successor = successors.choose(group, partition, but={handoff.source})
        if successor:
            return to.copy(group, partition, handoff, successor, now_ms, numbers)
    return to.switch(group, partition, handoff.successor, now_ms, numbers, outcome)


def phase_overdue(group: SessionGroup, command: PhaseOverdue, step: Step) -> None:
    """A phase's deadline has passed; ignored if another phase has begun."""
    partition = command.topic, command.partition
    handoff = group.handoff(partition)
    if (
        handoff is not None
        and handoff.handoff_id == command.handoff_id
        and handoff.phase.value == command.phase
    ):
        handoff.is_overdue = True
        reconcile(group, partition, step)


# --- A holder ends ---


def end_of_holder(
    group: SessionGroup,
    member: SessionMember,
    cause: EndCause,
    now_ms: int,
    numbers: Numbers,
    *,
    is_inherited: bool,
    is_delayed: bool,
) -> list[Record]:
    """Records that complete a member's open hand-offs when its session ends.

    They go before the record of its end, which frees the rest. Each counts only if the member still
    holds the partition under its token then: another record of it may be in flight.

    `is_inherited`: what it holds is reserved for its name, or goes to another process of that name,
    with the partitions for which a successor prepares. `is_delayed`: successors have to wait.
    """
    stops.end(group, member, cause, now_ms)
    is_silent = cause in stops.SILENT
    outcome = HandoffOutcome.HOLDER_DIED if is_silent else HandoffOutcome.HOLDER_LEFT
    records: list[Record] = []
    for partition in sorted(group.partitions_of(member.member_id)):
        handoff = group.handoff(partition)
        state = group.partition_state(partition)
        is_released = state.release is not None
        if handoff is None or (is_released and state.writes_pending):
            continue  # It is free, or goes on by the record that is in flight.
        if is_inherited and handoff.phase is Phase.PREPARE and not is_released:
            continue
        how = HandoffOutcome.RELEASED if is_released else outcome
        if is_delayed:
            records.append(to.switch(group, partition, "", now_ms, numbers, how))
        else:
            records.append(_pass_on(group, partition, handoff, now_ms, numbers, how))
    return records


def reconsider(group: SessionGroup, member_id: str, step: Step) -> None:
    """Reconcile the hand-offs to a member that changed, leaves or is gone."""
    for partition, handoff in list(group.open_handoffs()):
        if handoff.successor == member_id:
            reconcile(group, partition, step)


def leaves_by(group: SessionGroup, member: SessionMember, step: Step) -> None:
    """Shorten the phases of a leaving holder's hand-offs to its announced deadline."""
    for partition in group.partitions_of(member.member_id):
        handoff = group.handoff(partition)
        if handoff is None or handoff.deadline_ms == NO_TIME or handoff.phase is Phase.FORCED:
            continue
        deadline_ms = step.now_ms + to.bound(member, handoff.phase, step.now_ms)
        if deadline_ms < handoff.deadline_ms:
            _arm(group, partition, handoff, deadline_ms, step)


# --- Resolved writes ---


def write_resolved(
    group: SessionGroup, partition: TopicPartition, step: Step, *, is_refused: bool
) -> None:
    """The write about a partition is resolved: reconcile it."""
    if is_refused:
        if not group.refused_writes:
            step.out.defer(DeferRetry(group.group_id, step.now_ms + RETRY_MS))
        group.refused_writes.add(partition)
        return
    entered(group, partition, step)
    reconcile(group, partition, step)


def retry(group: SessionGroup, step: Step) -> None:
    """Reconcile the partitions whose records the log refused."""
    refused, group.refused_writes = group.refused_writes, set()
    for partition in sorted(refused):
        reconcile(group, partition, step)


def entered(group: SessionGroup, partition: TopicPartition, step: Step) -> None:
    """A phase is durable: arm its deadline, unless only its successor changed."""
    handoff = group.handoff(partition)
    if handoff is None or handoff.deadline_ms != NO_TIME:
        return
    length_ms = handoff.length_ms
    if handoff.phase is Phase.FORCED:
        # Its holder may have been renewed until this record: a lease from the last renewal.
        member = group.members.get(handoff.source)
        seen_ms = step.now_ms if member is None else member.last_beat_ms
        length_ms = max(0, seen_ms + handoff.length_ms - step.now_ms)
    _arm(group, partition, handoff, step.now_ms + length_ms, step)


def _arm(
    group: SessionGroup, partition: TopicPartition, handoff: Handoff, deadline_ms: int, step: Step
) -> None:
    handoff.deadline_ms = deadline_ms
    step.out.defer(
        DeferPhase(group.group_id, *partition, handoff.handoff_id, handoff.phase.value, deadline_ms)
    )


def restore(group: SessionGroup, partition: TopicPartition, step: Step) -> None:
    """Restart each open phase in full under a new owner of the shard, and reconcile it."""
    entered(group, partition, step)
    reconcile(group, partition, step)


def remaining_ms(handoff: Handoff, now_ms: int) -> int:
    """Time that a phase has left."""
    if handoff.deadline_ms == NO_TIME:
        return handoff.length_ms
    return max(0, handoff.deadline_ms - now_ms)


def _write(
    group: SessionGroup, partition: TopicPartition, record: HandoffDecision, step: Step
) -> None:
    receiver = record.successor if isinstance(record, PhaseEntered) else record.member_id
    group.note_write_pending((partition,), receiver)
    step.out.persist(
        (record,),
        NoFollowUp(group.group_id),
        follow_up=ReviewPartitions(group.group_id, (partition,)),
    )


def _leaves(group: SessionGroup, member_id: str) -> bool:
    member = group.members.get(member_id)
    return member is not None and member.is_leaving


def _is_fit(group: SessionGroup, partition: TopicPartition, handoff: Handoff) -> bool:
    return successors.may_have(group, partition, handoff.successor)
