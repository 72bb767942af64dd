"""A plan of a session group, and its hand-offs, in plain sentences.

Names come from clients, so every one is made printable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from coordinator.assignors.partitions import spelled_ranges
from coordinator.core.values.events import HandoffJournaled
from coordinator.core.values.ids import NO_OFFSET, NO_TIME
from coordinator.core.values.plan_journal import (
    RETURNED,
    HandoffLine,
    HandoffOutcome,
    PlannedMove,
    PlanRecord,
    StoppedBy,
    TriggerCause,
)
from coordinator.core.values.records import PartitionSwitched
from coordinator.observe.spelling import (
    RANGES_NAMED,
    count_of,
    listed,
    member_of,
    partitions_of,
    quoted,
    spell,
    spell_between,
)
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
        *_returned(plan),
        *_unowned(plan),
        *_unplaced(plan),
        *_refused(plan),
        *_partly(plan),
        *_handoffs(handoffs),
    ]


def explain_handoff(event: HandoffJournaled) -> str:
    """One sentence about a hand-off that has ended."""
    record, line = event.record, event.record.line
    assert line is not None
    partition = printable(f"{record.topic}-{record.partition}")
    took = spell(max(0, line.ended_at_ms - line.opened_at_ms))
    how = _OUTCOMES[line.outcome].format(who=_holder(line.source))
    unowned = ""
    if line.stop is not None:
        worked = spell_between(*line.stop.idle_ms(line.ended_at_ms))
        unowned = f"; nobody worked on it for {worked}"
    return (
        f"{partition} of group {quoted(event.group_id)} went {_from_to(event)} in {took}: {how}"
        f"{_phases(line)}{unowned}{_offsets(line)}."
    )


def to_of(event: HandoffJournaled) -> str:
    """Member id of the holder after a hand-off; empty: nobody."""
    record = event.record
    if isinstance(record, PartitionSwitched):
        return record.member_id
    return "" if record.line is None else record.line.source


def _from_to(event: HandoffJournaled) -> str:
    source = "" if event.record.line is None else event.record.line.source
    return f"from {member_of(source)} to {_holder(to_of(event))}"


def _holder(member_id: str) -> str:
    return member_of(member_id) if member_id else "nobody"


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
    phrases = [
        f"{name} for {spell(end_ms - begin_ms)}"
        for name, begin_ms, end_ms in spans
        if min(begin_ms, end_ms) != NO_TIME and end_ms >= begin_ms
    ]
    return f" ({', '.join(phrases)})" if phrases else ""


def _offsets(line: HandoffLine) -> str:
    """The offset at which the next holder began, if the one before it stopped elsewhere."""
    if NO_OFFSET in (line.start_offset, line.position) or line.start_offset == line.position:
        return ""
    return f"; it stopped at offset {line.position}, and the next began at {line.start_offset}"


def _known(*times: int) -> int:
    return next((at_ms for at_ms in times if at_ms != NO_TIME), NO_TIME)


# --- The plan -----------------------------------------------------------------------------------


def _headline(plan: PlanRecord) -> str:
    at = datetime.fromtimestamp(plan.made_at_ms / 1_000, UTC)
    if plan.is_return:
        went_on = sum(count for _, count in plan.counts)
        return (
            f"Return in group {quoted(plan.group_id)}, {at:%Y-%m-%d %H:%M:%S} UTC: "
            f"{count_of(went_on, 'partition')} of {plan.partition_count} went on where they had "
            f"been, without a plan; {count_of(plan.member_count, 'member')}."
        )
    return (
        f"Plan of group {quoted(plan.group_id)}, {at:%Y-%m-%d %H:%M:%S} UTC: "
        f"{count_of(plan.moved, 'partition')} of {plan.partition_count} {_to_whom(plan)}, "
        f"{count_of(plan.member_count, 'member')}."
    )


_CAUSES = {
    TriggerCause.FAIL_OVER: "the group had no coordinator until this node took it over",
    TriggerCause.STORE_WENT_BACK: "the store had lost commits that were acknowledged",
    TriggerCause.MEMBER_CAME: "member {who} came",
    TriggerCause.MEMBER_BACK: "member {who} can receive again",
    TriggerCause.MEMBER_CHANGED: "member {who} declared other topics or another capacity",
    TriggerCause.MEMBER_STALLED: "member {who} did not get on for as long as the policy allows",
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
    if plan.is_return and not plan.triggers:
        return "Their holders had been away."
    if not plan.triggers:
        return f"It was made {waited} after it was called for."
    causes = "; ".join(
        cause_of(trigger.cause.value, trigger.member_id) for trigger in plan.triggers[:NAMED_MAX]
    )
    left = plan.trigger_count - min(NAMED_MAX, len(plan.triggers))
    more = f"; and {count_of(left, 'more event')}" if left > 0 else ""
    if plan.is_return:
        return f"It began because {causes}{more}."
    return f"It was made {waited} after the first event that called for it: {causes}{more}."


def cause_of(code: str, member_id: str) -> str:
    """An event that called for a plan, by its code, in half a sentence."""
    return _CAUSES[TriggerCause(code)].format(who=member_of(member_id) if member_id else "somebody")


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
        if reason == RETURNED:
            continue
        why = _REASONS.get(reason, printable(reason))
        changes: dict[tuple[str, str], list[PlannedMove]] = {}
        for move in plan.moves:
            if move.reason == reason:
                changes.setdefault((move.source, move.target), []).append(move)
        named = "; ".join(map(_moved, list(changes.values())[:NAMED_MAX]))
        more = "; and others" if len(changes) > NAMED_MAX else ""
        yield f"{count_of(count, 'partition')} {why}{f': {named}{more}' if named else ''}."


def _moved(moves: Sequence[PlannedMove]) -> str:
    """Moves from one holder to another: `t-0…3,7, u-2 from 'a' to 'b'`."""
    source = f" from {member_of(moves[0].source)}" if moves[0].source else ""
    return f"{_partitions(moves)}{source} to {_holder(moves[0].target)}"


def _partitions(moves: Sequence[PlannedMove]) -> str:
    topics: dict[str, list[tuple[int, int]]] = {}
    for move in moves:
        topics.setdefault(move.topic, []).extend(move.partitions)
    named = [
        spelled_ranges(printable(topic), sorted(ranges)[:RANGES_NAMED])
        for topic, ranges in sorted(topics.items())[:NAMED_MAX]
    ]
    is_cut = len(topics) > NAMED_MAX or any(
        len(some_ranges) > RANGES_NAMED for some_ranges in topics.values()
    )
    return f"{', '.join(named)}{' and others' if is_cut else ''}"


_CAME_BACK = {
    StoppedBy.LOST: "it came back, and its lease had run out by its own clock",
    StoppedBy.SUSPENDED: "its lease could not be renewed until then",
    StoppedBy.LEFT: "it had left, and came back",
    StoppedBy.LAST_SEEN: "the process before it was not heard any more",
    StoppedBy.NOT_SEEN: "the process before it was not heard any more",
    StoppedBy.RELEASED: "it had given them back",
    StoppedBy.FORCED: "it had been told to stop",
}


def _returned(plan: PlanRecord) -> Iterator[str]:
    """Sentences about partitions that went on without the plan."""
    count = dict(plan.counts).get(RETURNED, 0)
    if not count:
        return
    if not plan.is_return:
        yield f"Before it, {count_of(count, 'partition')} went on where they had been."
    moves = [move for move in plan.moves if move.reason == RETURNED and move.stop is not None]
    for move in moves[:NAMED_MAX]:
        assert move.stop is not None
        idle = spell_between(*move.stop.idle_ms(move.resumed_by(plan.made_at_ms)))
        why = _CAME_BACK[move.stop.known_by]
        yield f"{_partitions([move])} of {member_of(move.target)} stood idle for {idle}: {why}."
    if len(moves) > NAMED_MAX:
        yield "So did others."


def _unowned(plan: PlanRecord) -> Iterator[str]:
    unowned = plan.unowned
    if unowned.partitions:
        longest = spell_between(unowned.ms_max_at_least, unowned.ms_max)
        total = spell_between(unowned.ms_total_at_least, unowned.ms_total)
        yield (
            f"Nobody had worked on {count_of(unowned.partitions, 'partition')}: on one of them for "
            f"{longest}, on all for {total} in sum."
        )


def _to_whom(plan: PlanRecord) -> str:
    is_known = bool(plan.moves) and not plan.left_out
    is_given_up = is_known and not any(move.target for move in plan.moves)
    return "given up, to nobody" if is_given_up else "to another holder"


_UNPLACED = {
    "nobody_receives": "no member receives partitions",
    "capacity": "all members have as many as they take",
    "not_allowed": "every member is excluded from them, or has refused them lately",
    "pinned": "they are pinned to a member that is not there",
}


def _unplaced(plan: PlanRecord) -> Iterator[str]:
    for why, count in plan.unplaced:
        reason = _UNPLACED.get(why, printable(why))
        yield f"{count_of(count, 'partition')} found no holder: {reason}."


def _refused(plan: PlanRecord) -> Iterator[str]:
    if plan.refusing_members:
        members = count_of(plan.refusing_members, "member")
        yield f"{members} had refused what they were asked to take, and will be asked again later."


def _partly(plan: PlanRecord) -> Iterator[str]:
    """A sentence for each range of partitions that only some members may have."""
    for partly in plan.partly_declared:
        where = partitions_of(partly.topic, [partly], partly.last - partly.first + 1)
        who = listed(map(member_of, partly.member_ids), NAMED_MAX)
        more = partly.member_count - len(partly.member_ids)
        others = f" and {count_of(more, 'other')}" if more > 0 else ""
        yield f"{where} is declared only by {who}{others}."


def _handoffs(handoffs: Sequence[HandoffJournaled]) -> Iterator[str]:
    lines = [event for event in handoffs if event.record.line is not None]
    if not lines:
        return
    outcomes = Counter(_line(event).outcome.value.replace("_", " ") for event in lines)
    counted = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    yield f"{count_of(len(lines), 'hand-off')} of it ended: {counted}."
    slow = sorted(lines, key=_took_ms, reverse=True)
    forced = [e for e in lines if _line(e).outcome is HandoffOutcome.FORCED]
    named = list(
        dict.fromkeys([*forced[:NAMED_MAX], *(e for e in slow[:1] if _took_ms(e) >= SLOW_MS)])
    )
    for event in named:
        yield explain_handoff(event)
    idle = [(idle_ms, e) for e in lines if (idle_ms := _idle_ms(e)) is not None]
    if idle:
        longest_ms, event = max(idle, key=lambda journaled: journaled[0])
        partition = printable(f"{event.record.topic}-{event.record.partition}")
        yield f"Nobody worked on {partition} for {spell(longest_ms)}, the longest of them."


def _line(event: HandoffJournaled) -> HandoffLine:
    assert event.record.line is not None
    return event.record.line


def _took_ms(event: HandoffJournaled) -> int:
    return max(0, _line(event).ended_at_ms - _line(event).opened_at_ms)


def _idle_ms(event: HandoffJournaled) -> int | None:
    line = _line(event)
    return None if line.stop is None else max(line.stop.idle_ms(line.ended_at_ms))
