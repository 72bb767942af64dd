"""Records of hand-offs: which phase begins, how long it may take, what the journal says of it."""

from __future__ import annotations

from dataclasses import replace

from coordinator.core.ids import NO_OFFSET, NO_TIME, NO_TOKEN, TopicPartition
from coordinator.core.numbers import Numbers
from coordinator.core.session_values.journal import HandoffLine, HandoffOutcome, Stop, StoppedBy
from coordinator.core.session_values.records import PartitionSwitched, Phase, PhaseEntered
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import successors
from coordinator.core.sessions.holdings import Handoff
from coordinator.core.sessions.member import SessionMember


def begin(
    group: SessionGroup,
    place: TopicPartition,
    phase: Phase,
    successor: str,
    now_ms: int,
    numbers: Numbers,
    reason: str = "",
) -> PhaseEntered:
    """Open a hand-off with its first phase."""
    line = HandoffLine(
        numbers.next_handoff(), group.holder(place), group.policy.mode.value, reason, now_ms
    )
    return _enter(group, place, phase, successor, _timed(line, phase, now_ms), now_ms)


def go_on(
    group: SessionGroup, place: TopicPartition, handoff: Handoff, phase: Phase, now_ms: int
) -> PhaseEntered:
    """The next phase of the same hand-off, with the same successor."""
    line = _timed(handoff.line, phase, now_ms)
    if handoff.phase is Phase.PREPARE and handoff.is_ready:
        line = replace(line, prepared_at_ms=now_ms)
    return _enter(group, place, phase, handoff.successor, line, now_ms)


def ask_another(
    group: SessionGroup,
    place: TopicPartition,
    handoff: Handoff,
    successor: str,
    now_ms: int,
    numbers: Numbers,
) -> PhaseEntered:
    """Have another one prepare, under a new id and with its full time."""
    line = replace(handoff.line, handoff_id=numbers.next_handoff())
    return _enter(group, place, handoff.phase, successor, line, now_ms, handoff.position)


def redirect(
    group: SessionGroup, place: TopicPartition, handoff: Handoff, successor: str
) -> PhaseEntered:
    """Another successor, or none, of a drain, which goes on as it is and gets no more time."""
    return PhaseEntered(
        group.group_id,
        *place,
        handoff.phase,
        handoff.handoff_id,
        successor,
        handoff.length_ms,
        handoff.position,
        group.token(place),
        handoff.line,
    )


def give_up(
    group: SessionGroup, place: TopicPartition, handoff: Handoff, now_ms: int
) -> PhaseEntered:
    """The partition stays with its holder, because nobody is ready to have it."""
    line = replace(handoff.line, ended_at_ms=now_ms, outcome=HandoffOutcome.ABANDONED)
    return _enter(group, place, Phase.HELD, "", line, now_ms)


def copy(
    group: SessionGroup,
    place: TopicPartition,
    handoff: Handoff,
    successor: str,
    now_ms: int,
    numbers: Numbers,
) -> PhaseEntered:
    """The holder's token has ended: the successor prepares from where it stopped."""
    stored = group.offsets.get(place)
    committed = NO_OFFSET if stored is None else stored.offset
    position = group.partition_state(place).position
    position = committed if position == NO_OFFSET else position
    line = replace(handoff.line, released_at_ms=now_ms, position=position, stop=_stop(group, place))
    if successor != handoff.successor:
        line = replace(line, handoff_id=numbers.next_handoff())
    return _enter(group, place, Phase.COPY, successor, line, now_ms, position)


def switch(
    group: SessionGroup,
    place: TopicPartition,
    successor: str,
    now_ms: int,
    numbers: Numbers,
    outcome: HandoffOutcome = HandoffOutcome.RELEASED,
    stop: Stop | None = None,
) -> PartitionSwitched:
    """End the holder's token, and begin the successor's if it may be given the partition now.

    `outcome`: how the hand-off ended. `stop`: when its holder stopped, if that is not noted yet.
    """
    token = NO_TOKEN
    may_get = group.may_grant(now_ms) and successors.may_get(group, place, successor)
    if successor and may_get:
        token = numbers.next_token()
    line, handoff = None, group.handoff(place)
    if handoff is not None:
        line = _closed(group, place, handoff, now_ms, outcome, stop or _stop(group, place))
    return PartitionSwitched(
        group.group_id, *place, successor if token else "", token, line, group.token(place)
    )


def _closed(
    group: SessionGroup,
    place: TopicPartition,
    handoff: Handoff,
    now_ms: int,
    outcome: HandoffOutcome,
    stop: Stop | None,
) -> HandoffLine:
    line = replace(handoff.line, ended_at_ms=now_ms, outcome=outcome)
    if handoff.phase is Phase.COPY:
        return line  # Its holder stopped before it.
    if stop is not None and stop.known_by is StoppedBy.RELEASED:
        line = replace(line, released_at_ms=stop.latest_ms)
    elif stop is not None and stop.known_by is StoppedBy.FORCED:
        line = replace(line, outcome=HandoffOutcome.FORCED)
    return replace(line, stop=stop, position=group.partition_state(place).position)


def _stop(group: SessionGroup, place: TopicPartition) -> Stop | None:
    rest = group.rest(place)
    return None if rest is None else rest.stop


def _timed(line: HandoffLine, phase: Phase, now_ms: int) -> HandoffLine:
    if phase is Phase.DRAIN:
        return replace(line, drain_at_ms=now_ms)
    return replace(line, forced_at_ms=now_ms) if phase is Phase.FORCED else line


def _enter(
    group: SessionGroup,
    place: TopicPartition,
    phase: Phase,
    successor: str,
    line: HandoffLine,
    now_ms: int,
    position: int = NO_OFFSET,
) -> PhaseEntered:
    length_ms = _length(group, place, phase, now_ms)
    token = group.token(place)
    return PhaseEntered(
        group.group_id, *place, phase, line.handoff_id, successor, length_ms, position, token, line
    )


def _length(group: SessionGroup, place: TopicPartition, phase: Phase, now_ms: int) -> int:
    """Longest time of a phase, by the policy and by what its holder has announced."""
    policy = group.policy
    holder = group.members.get(group.holder(place))
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
    """The longest that a phase may take of a holder that leaves; NO_TIME: there is no bound.

    Half of the time left is for its successor to prepare, because the drain comes after that.
    """
    if holder is None or holder.leaves_at_ms == NO_TIME:
        return NO_TIME
    left_ms = max(0, holder.leaves_at_ms - now_ms)
    return left_ms // 2 if phase is Phase.PREPARE else left_ms


def _least(*lengths_ms: int | None) -> int:
    return min(each for each in lengths_ms if each is not None and each != NO_TIME)
