"""A plan of a session group, and its hand-offs, in plain sentences.

Names come from clients, so every one is made printable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from coordinator.core.events import HandoffJournaled
from coordinator.core.ids import NO_TIME
from coordinator.core.session_values.journal import (
    HandoffLine,
    HandoffOutcome,
    PlannedMove,
    PlanRecord,
    PlanTrigger,
    TriggerCause,
)
from coordinator.core.session_values.records import PartitionSwitched
from coordinator.observe.spelling import count_of, quoted, spell, spell_between
from coordinator.printable import printable

NAMED_MAX = 5
SLOW_MS = 1_000
"""Length of a hand-off that is worth a sentence."""


def explain_plan(plan: PlanRecord, handoffs: Sequence[HandoffJournaled] = ()) -> list[str]:
    """Sentences about a plan, and about the hand-offs that it has led to and that have ended."""
    return [
        _headline(plan),
        _cause(plan),
        *_moves(plan),
        *_unowned(plan),
        *_unplaced(plan),
        *_handoffs(handoffs),
    ]


def explain_handoff(event: HandoffJournaled) -> str:
    """One sentence about a hand-off that has ended."""
    record, line = event.record, event.record.line
    assert line is not None
    place = printable(f"{record.topic}-{record.partition}")
    took = spell(max(0, line.ended_at_ms - line.opened_at_ms))
    how = _OUTCOMES[line.outcome].format(who=quoted(line.source or "nobody"))
    rest = ""
    if line.stop is not None:
        worked = spell_between(*line.stop.rest_ms(line.ended_at_ms))
        rest = f"; nobody worked on it for {worked}"
    return (
        f"{place} of group {quoted(event.group_id)} went {_from_to(event)} in {took}: {how}"
        f"{_phases(line)}{rest}."
    )


def to_of(event: HandoffJournaled) -> str:
    """Member id of the holder after a hand-off; empty: nobody."""
    record = event.record
    if isinstance(record, PartitionSwitched):
        return record.member_id
    return "" if record.line is None else record.line.source


def _from_to(event: HandoffJournaled) -> str:
    source = "" if event.record.line is None else event.record.line.source
    to = to_of(event)
    return f"from {quoted(source)} to {quoted(to) if to else 'nobody'}"


_OUTCOMES = {
    HandoffOutcome.OPEN: "it is open",
    HandoffOutcome.RELEASED: "{who} released it",
    HandoffOutcome.HOLDER_LEFT: "{who} left",
    HandoffOutcome.HOLDER_DIED: "nothing was heard of {who} for its whole lease",
    HandoffOutcome.FORCED: "{who} did not release it in time, and its lease ran out",
    HandoffOutcome.ABANDONED: "nobody was ready to have it, so it stays with {who}",
}


def _phases(line: HandoffLine) -> str:
    spans = (
        ("prepared", line.opened_at_ms, line.prepared_at_ms),
        ("drained", line.drain_at_ms, _known(line.released_at_ms, line.forced_at_ms)),
        ("forced", line.forced_at_ms, line.ended_at_ms),
    )
    told = [
        f"{name} for {spell(end_ms - begin_ms)}"
        for name, begin_ms, end_ms in spans
        if min(begin_ms, end_ms) != NO_TIME and end_ms >= begin_ms
    ]
    return f" ({', '.join(told)})" if told else ""


def _known(*times: int) -> int:
    return next((at_ms for at_ms in times if at_ms != NO_TIME), NO_TIME)


# --- The plan -----------------------------------------------------------------------------------


def _headline(plan: PlanRecord) -> str:
    at = datetime.fromtimestamp(plan.made_at_ms / 1_000, UTC)
    moved = sum(count for _, count in plan.counts)
    return (
        f"Plan of group {quoted(plan.group_id)}, {at:%Y-%m-%d %H:%M:%S} UTC: "
        f"{count_of(moved, 'partition')} of {plan.partition_count} to another holder, "
        f"{count_of(plan.member_count, 'member')}."
    )


_CAUSES = {
    TriggerCause.FAIL_OVER: "this node took the group over",
    TriggerCause.MEMBER_CAME: "member {who} came",
    TriggerCause.MEMBER_BACK: "member {who} can receive again",
    TriggerCause.MEMBER_CHANGED: "member {who} declared other topics or another capacity",
    TriggerCause.MEMBER_DRAINS: "member {who} leaves and hands everything over",
    TriggerCause.MEMBER_LEFT: "member {who} left",
    TriggerCause.MEMBER_DIED: "nothing was heard of member {who} for its whole lease",
    TriggerCause.MEMBER_EVICTED: "an operator evicted member {who}",
    TriggerCause.PARTITION_FREED: "a partition of {who} was given up",
    TriggerCause.RETURN_OVERDUE: "{who} did not return in time",
    TriggerCause.POLICY_CHANGED: "the policy was changed",
}


def _cause(plan: PlanRecord) -> str:
    waited = spell(max(0, plan.made_at_ms - plan.called_at_ms))
    if not plan.triggers:
        return f"It was made {waited} after it was called for."
    told = "; ".join(_trigger(each) for each in plan.triggers[:NAMED_MAX])
    left = plan.trigger_count - min(NAMED_MAX, len(plan.triggers))
    more = f"; and {count_of(left, 'more event')}" if left > 0 else ""
    return f"It was made {waited} after the first event that called for it: {told}{more}."


def _trigger(trigger: PlanTrigger) -> str:
    who = quoted(trigger.member_id) if trigger.member_id else "somebody"
    return _CAUSES[trigger.cause].format(who=who)


_REASONS = {
    "free": "because nobody held them",
    "holder_leaves": "because their holder leaves",
    "no_longer_declared": "because they are no longer declared",
    "not_allowed": "because their holder may not have them",
    "pinned": "because they are pinned",
    "above_maximum": "because their holder has more than it takes",
    "balance": "for balance",
}


def _moves(plan: PlanRecord) -> Iterator[str]:
    for reason, count in plan.counts:
        why = _REASONS.get(reason, printable(reason))
        some = [move for move in plan.moves if move.reason == reason]
        named = ", ".join(_move(move) for move in some[:NAMED_MAX])
        more = " and others" if len(some) > NAMED_MAX else ""
        yield f"{count_of(count, 'partition')} {why}{f': {named}{more}' if named else ''}."


def _move(move: PlannedMove) -> str:
    ranges = ",".join(
        str(first) if first == last else f"{first}-{last}"
        for first, last in move.partitions[:NAMED_MAX]
    )
    more = ",…" if len(move.partitions) > NAMED_MAX else ""
    source = f" from {quoted(move.source)}" if move.source else ""
    to = quoted(move.target) if move.target else "nobody"
    return f"{printable(move.topic)}:{ranges}{more}{source} to {to}"


def _unowned(plan: PlanRecord) -> Iterator[str]:
    unowned = plan.unowned
    if unowned.partitions:
        longest = spell_between(unowned.ms_max_at_least, unowned.ms_max)
        total = spell_between(unowned.ms_total_at_least, unowned.ms_total)
        yield (
            f"Nobody had worked on {count_of(unowned.partitions, 'partition')}: on one of them for "
            f"{longest}, on all for {total} in sum."
        )


_UNPLACED = {
    "nobody_receives": "no member receives partitions",
    "capacity": "all members have as many as they take",
    "not_allowed": "every member is excluded from them, or has refused them lately",
    "pinned": "they are pinned to a member that is not there",
}


def _unplaced(plan: PlanRecord) -> Iterator[str]:
    for why, count in plan.unplaced:
        told = _UNPLACED.get(why, printable(why))
        yield f"{count_of(count, 'partition')} found no holder: {told}."


def _handoffs(handoffs: Sequence[HandoffJournaled]) -> Iterator[str]:
    lines = [event for event in handoffs if event.record.line is not None]
    if not lines:
        return
    outcomes = Counter(_line(event).outcome.value.replace("_", " ") for event in lines)
    told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    yield f"{count_of(len(lines), 'hand-off')} of it ended: {told}."
    slow = sorted(lines, key=_took_ms, reverse=True)
    forced = [e for e in lines if _line(e).outcome is HandoffOutcome.FORCED]
    named = list(
        dict.fromkeys([*forced[:NAMED_MAX], *(e for e in slow[:1] if _took_ms(e) >= SLOW_MS)])
    )
    for event in named:
        yield explain_handoff(event)
    rested = [(rest, e) for e in lines if (rest := _rest_ms(e)) is not None]
    if rested:
        longest_ms, event = max(rested, key=lambda each: each[0])
        place = printable(f"{event.record.topic}-{event.record.partition}")
        yield f"Nobody worked on {place} for {spell(longest_ms)}, the longest of them."


def _line(event: HandoffJournaled) -> HandoffLine:
    assert event.record.line is not None
    return event.record.line


def _took_ms(event: HandoffJournaled) -> int:
    return max(0, _line(event).ended_at_ms - _line(event).opened_at_ms)


def _rest_ms(event: HandoffJournaled) -> int | None:
    line = _line(event)
    return None if line.stop is None else max(line.stop.rest_ms(line.ended_at_ms))
