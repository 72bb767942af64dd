"""Records of hand-offs: which phase begins, how long it may take, what the journal says of it."""

from __future__ import annotations

from dataclasses import replace

from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import successors
from coordinator.core.sessions.holdings import Handoff
from coordinator.core.sessions.member import SessionMember
from coordinator.core.step import Numbers
from coordinator.core.values.ids import NO_OFFSET, NO_TIME, NO_TOKEN, TopicPartition
from coordinator.core.values.plan_journal import HandoffLine, HandoffOutcome, StoppedBy, WorkStop
from coordinator.core.values.records import PartitionSwitched, Phase, PhaseEntered


def begin(
    group: SessionGroup,
    partition: TopicPartition,
    phase: Phase,
    successor: str,
    now_ms: int,
    numbers: Numbers,
    reason: str = "",
) -> PhaseEntered:
    """Open a hand-off with its first phase."""
    line = HandoffLine(
        numbers.next_handoff(), group.holder(partition), group.policy.mode.value, reason, now_ms
    )
    return _enter(group, partition, phase, successor, _timed(line, phase, now_ms), now_ms)


def go_on(
    group: SessionGroup, partition: TopicPartition, handoff: Handoff, phase: Phase, now_ms: int
) -> PhaseEntered:
    """The next phase of the same hand-off, with the same successor."""
    line = _timed(handoff.line, phase, now_ms)
    if handoff.phase is Phase.PREPARE and handoff.is_ready:
        line = replace(line, prepared_at_ms=now_ms)
    return _enter(group, partition, phase, handoff.successor, line, now_ms)


def prepare_another(
    group: SessionGroup,
    partition: TopicPartition,
    handoff: Handoff,
    successor: str,
    now_ms: int,
    numbers: Numbers,
) -> PhaseEntered:
    """Start PREPARE anew for another successor, under a new id and with its full time."""
    line = replace(handoff.line, handoff_id=numbers.next_handoff())
    return _enter(group, partition, handoff.phase, successor, line, now_ms, handoff.position)


def redirect(
    group: SessionGroup, partition: TopicPartition, handoff: Handoff, successor: str
) -> PhaseEntered:
    """Change the successor of a drain (empty: none) without extending its time."""
    return PhaseEntered(
        group.group_id,
        *partition,
        handoff.phase,
        handoff.handoff_id,
        successor,
        handoff.length_ms,
        handoff.position,
        group.token(partition),
        handoff.line,
    )


def give_up(
    group: SessionGroup, partition: TopicPartition, handoff: Handoff, now_ms: int
) -> PhaseEntered:
    """Cancel a hand-off, because no successor is ready: the holder keeps the partition."""
    line = replace(handoff.line, ended_at_ms=now_ms, outcome=HandoffOutcome.ABANDONED)
    return _enter(group, partition, Phase.HELD, "", line, now_ms)


def copy(
    group: SessionGroup,
    partition: TopicPartition,
    handoff: Handoff,
    successor: str,
    now_ms: int,
    numbers: Numbers,
) -> PhaseEntered:
    """The holder's token has ended: the successor prepares from where it stopped."""
    stored = group.offsets.get(partition)
    committed = NO_OFFSET if stored is None else stored.offset
    position = group.partition_state(partition).position
    position = committed if position == NO_OFFSET else position
    line = replace(
        handoff.line, released_at_ms=now_ms, position=position, stop=_stop(group, partition)
    )
    if successor != handoff.successor:
        line = replace(line, handoff_id=numbers.next_handoff())
    return _enter(group, partition, Phase.COPY, successor, line, now_ms, position)


def switch(
    group: SessionGroup,
    partition: TopicPartition,
    successor: str,
    now_ms: int,
    numbers: Numbers,
    outcome: HandoffOutcome = HandoffOutcome.RELEASED,
    stop: WorkStop | None = None,
) -> PartitionSwitched:
    """End the holder's token, and begin the successor's if it may be given the partition now.

    `outcome`: how the hand-off ended. `stop`: when its holder stopped, if that is not noted yet.
    """
    token = NO_TOKEN
    may_get = group.may_grant(now_ms) and successors.may_get(group, partition, successor)
    if successor and may_get:
        token = numbers.next_token()
    line, handoff = None, group.handoff(partition)
    if handoff is not None:
        line = _closed(group, partition, handoff, now_ms, outcome, stop or _stop(group, partition))
    return PartitionSwitched(
        group.group_id, *partition, successor if token else "", token, line, group.token(partition)
    )


def _closed(
    group: SessionGroup,
    partition: TopicPartition,
    handoff: Handoff,
    now_ms: int,
    outcome: HandoffOutcome,
    stop: WorkStop | None,
) -> HandoffLine:
    line = replace(handoff.line, ended_at_ms=now_ms, outcome=outcome)
    if handoff.phase is Phase.COPY:
        return line  # Its holder stopped before it.
    if stop is not None and stop.known_by is StoppedBy.RELEASED:
        line = replace(line, released_at_ms=stop.latest_ms)
    elif stop is not None and stop.known_by is StoppedBy.FORCED:
        line = replace(line, outcome=HandoffOutcome.FORCED)
    return replace(line, stop=stop, position=group.partition_state(partition).position)


def _stop(group: SessionGroup, partition: TopicPartition) -> WorkStop | None:
    idle_span = group.idle_span(partition)
    return None if idle_span is None else idle_span.stop


def _timed(line: HandoffLine, phase: Phase, now_ms: int) -> HandoffLine:
    if phase is Phase.DRAIN:
        return replace(line, drain_at_ms=now_ms)
    return replace(line, forced_at_ms=now_ms) if phase is Phase.FORCED else line


def _enter(
    group: SessionGroup,
    partition: TopicPartition,
    phase: Phase,
    successor: str,
    line: HandoffLine,
    now_ms: int,
    position: int = NO_OFFSET,
) -> PhaseEntered:
    length_ms = _length(group, partition, phase, now_ms)
    token = group.token(partition)
    return PhaseEntered(
        group.group_id,
        *partition,
        phase,
        line.handoff_id,
        successor,
        length_ms,
        position,
        token,
        line,
    )


def _length(group: SessionGroup, partition: TopicPartition, phase: Phase, now_ms: int) -> int:
    """Longest time of a phase, by the policy and by what its holder has announced."""
    policy = group.policy
    holder = group.members.get(group.holder(partition))
    match phase:
        case Phase.PREPARE:
            return _least(policy.warm_timeout_ms, bound(holder, phase, now_ms))
        case Phase.COPY:
            return policy.warm_timeout_ms
        case Phase.DRAIN:
            wished_ms = None if holder is None else holder.record.drain_ms
            return _least(policy.drain_timeout_ms, wished_ms, bound(holder, phase, now_ms))
        case Phase.FORCED:
            return 0 if holder is None else holder.lease_ms
    return 0


def bound(holder: SessionMember | None, phase: Phase, now_ms: int) -> int:
    """Longest time of a phase whose holder leaves; NO_TIME: no bound.

    Half of the time left is for its successor to prepare, because the drain comes after that.
    """
    if holder is None or holder.leaves_at_ms == NO_TIME:
        return NO_TIME
    left_ms = max(0, holder.leaves_at_ms - now_ms)
    return left_ms // 2 if phase is Phase.PREPARE else left_ms


def _least(*lengths_ms: int | None) -> int:
    return min(
        length_ms for length_ms in lengths_ms if length_ms is not None and length_ms != NO_TIME
    )
