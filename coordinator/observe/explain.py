"""A rebalance in plain sentences: its cause, the slow members, its cost, and advice.

Names and reasons come from clients, so every one is made printable. `advice.py` has the advice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from coordinator.core.values.events import RebalanceCause, RefusedJoin
from coordinator.core.values.rebalance_journal import (
    OUTAGE_ENDED,
    RETURNED,
    SEEN_AGAIN,
    PartitionMove,
    RebalanceMember,
    RebalanceRecord,
    RemovedMember,
    StopKnownBy,
)
from coordinator.observe.advice import new_advice, slowest_to_join
from coordinator.observe.spelling import (
    count_of,
    listed,
    name_of,
    partitions_of,
    quoted,
    spell,
    spell_between,
    time_of_day,
)
from coordinator.printable import WITH_UUID, printable

LATE_MS = 100
"""Delay after the one before that makes the last member to join worth a sentence."""
NAMED_MAX = 5
LEFT = "left"


def explain(record: RebalanceRecord, before: Sequence[RebalanceRecord] = ()) -> list[str]:
    """Sentences about a rebalance, or a return without one; the advice last.

    Args:
        before: earlier rebalances of the group, newest first.
    """
    if record.is_return:
        return list(_return(record))
    return [
        _headline(record),
        _cause(record),
        *_outage(record),
        *_join_phase(record),
        *_sync_phase(record),
        *_cost(record),
        *_moves(record),
        *_protocol(record, before),
        *(advice.text for advice in new_advice(record, before)),
    ]


def cause_code(record: RebalanceRecord) -> str:
    return _CAUSE_CODES.get(record.cause, "unknown")


_CAUSE_CODES = {cause.value: cause.name.lower() for cause in RebalanceCause}


def explain_refusal(refused: RefusedJoin) -> str:
    """One or more refused joins of a client in plain sentences, with advice."""
    at = datetime.fromtimestamp(refused.last_at_ms / 1_000, UTC)
    who = name_of("", refused.client_id, refused.client_host)
    subject = "1 join" if refused.count == 1 else f"{refused.count} joins"
    error = refused.error.name
    sentence = f"{subject} of {who} refused, the last at {at:%H:%M:%S} UTC: {error}."
    if error != "INCONSISTENT_GROUP_PROTOCOL":
        return sentence
    offered = ", ".join(map(printable, refused.protocols)) or "nothing"
    needed = ", ".join(map(printable, refused.needed)) or "none of that type"
    return (
        f"{sentence} It offers {offered}; the members support {needed}. Advice: configure a "
        "protocol that the members support, or change the group's protocol in two rolling "
        "restarts: first with both protocols, then with the new one alone."
    )


# --- The record ------------------------------------------------------------------------------


def _headline(record: RebalanceRecord) -> str:
    at = datetime.fromtimestamp(record.started_at_ms / 1_000, UTC)
    took = spell(record.ended_at_ms - record.started_at_ms)
    how = {"completed": f"completed in {took}", "interrupted": f"interrupted after {took}"}
    return (
        f"Generation {record.generation_before} to {record.generation_after} of group "
        f"{quoted(record.group_id)}, {at:%Y-%m-%d %H:%M:%S} UTC: "
        f"{how.get(record.outcome, f'{record.outcome} after {took}')}, "
        f"{count_of(record.member_count, 'member')}."
    )


def _return(record: RebalanceRecord) -> Iterator[str]:
    """Sentences about a member, or a coordinator, that returned without a rebalance."""
    at = datetime.fromtimestamp(record.ended_at_ms / 1_000, UTC)
    is_outage = record.cause == OUTAGE_ENDED
    who = name_of(record.member_id, record.client_id, record.client_host)
    name = printable(_instance_id(record) or record.client_id)
    back = {
        OUTAGE_ENDED: "the coordinator returned",
        SEEN_AGAIN: f"{who} was heard again, after it had missed heartbeats",
    }.get(record.cause, f"the static member {name} returned")
    yield (
        f"Generation {record.generation_after} of group {quoted(record.group_id)}, "
        f"{at:%Y-%m-%d %H:%M:%S} UTC: {back}, without a rebalance, "
        f"{count_of(record.member_count, 'member')}."
    )
    if record.cause == RETURNED:
        yield f"{who} has taken its place and its partitions."
    yield from _outage(record)
    yield from _cost(record)
    for move in record.moves[:NAMED_MAX]:
        where = partitions_of(move.topic, move.partitions, move.partition_count)
        whom = name_of(move.to_member_id, move.to_client_id) if is_outage else "it"
        how_long = "" if _have_equal_times(record) else _idle_time(move)
        yield f"{where} stayed with {whom}{how_long}."
    yield from dict.fromkeys(filter(None, map(_evidence, record.moves[:NAMED_MAX])))


_CAUSES = {
    RebalanceCause.MEMBER_JOINED: "{who} joined{why}",
    RebalanceCause.MEMBER_LEFT: "{who} left{why}",
    RebalanceCause.ADMIN: "an operator removed {who}{why}",
    RebalanceCause.SESSION_EXPIRED: "nothing was heard of {who} for its whole session timeout"
    "{note}",
    RebalanceCause.METADATA_CHANGED: "{who} re-joined with other metadata{why}",
    RebalanceCause.LEADER_REJOINED: "the leader, {who}, re-joined to have work shared anew{why}",
    RebalanceCause.SYNC_TIMED_OUT: "{who} did not fetch its assignment in time",
    RebalanceCause.STATIC_MEMBER_REPLACED: "{who} replaced a static member, with other metadata"
    "{why}",
    RebalanceCause.LOADED: "{who} re-joined after a fail-over had interrupted a rebalance",
    RebalanceCause.ASSIGNMENT_NOT_STORED: "the assignment before could not be stored",
    RebalanceCause.CALL_CANCELLED: "{who} closed its connection while it was joining",
    RebalanceCause.SIZE_LIMIT: "the group exceeded group_max_size",
}
_CAUSE_SENTENCES = {
    cause.value: f"It began because {sentence}." for cause, sentence in _CAUSES.items()
}


def _instance_id(record: RebalanceRecord) -> str:
    """Instance id of the member that caused it; empty: it has none, or it is its client id."""
    # The coordinator begins an id with the member's instance id, or else with its client id.
    match = WITH_UUID.fullmatch(record.member_id)
    name = match["name"] if match is not None else None
    return name if name and name != record.client_id else ""


def _cause(record: RebalanceRecord) -> str:
    seen: tuple[RebalanceMember | RemovedMember, ...] = (*record.members, *record.removed)
    software = (m.client_software for m in seen if m.member_id == record.member_id)
    who = name_of(record.member_id, record.client_id, record.client_host, next(software, ""))
    why = f" and said: {printable(record.reason)}" if record.reason else ""
    instance_id = _instance_id(record)
    note = f": the static member {printable(instance_id)} did not return" if instance_id else ""
    if record.cooperative_round > 1 and record.cause in _JOINED_AGAIN:
        return (
            f"It is round {record.cooperative_round} of a cooperative rebalance: {who} joined again"
            f"{why}, so that what the round before took away is handed out."
        )
    if record.cause not in _CAUSE_SENTENCES:  # A newer version's.
        return f"It began because of: {record.cause}."
    return _CAUSE_SENTENCES[record.cause].format(who=who, why=why, note=note)


def _outage(record: RebalanceRecord) -> Iterator[str]:
    """A sentence about the time in which the group had no coordinator before."""
    if record.taken_over_at_ms:
        away = spell(max(0, record.taken_over_at_ms - record.silent_since_ms))
        yield (
            f"The group had no coordinator before, for up to {away} by the nodes' clocks: the log "
            f"has nothing from {time_of_day(record.silent_since_ms)} until this node took the "
            f"group over at {time_of_day(record.taken_over_at_ms)}."
        )
    if record.store_went_back:
        yield (
            "The store had lost commits that were acknowledged: offsets went back with it, and "
            "generations begin above all that it may have lost."
        )


_JOINED_AGAIN = (RebalanceCause.METADATA_CHANGED.value, RebalanceCause.LEADER_REJOINED.value)


def _join_phase(record: RebalanceRecord) -> Iterator[str]:
    took = spell(record.joined_at_ms - record.started_at_ms)
    if record.joined_at_ms < 0:
        missing = f"{count_of(len(record.members), 'member')} had joined"
        yield f"No new generation was formed: {missing} when the rebalance ended."
    elif record.was_initial:
        yield f"The join phase waited {took} for more first members: the initial delay."
    else:
        yield f"The join phase took {took}."
        last = slowest_to_join(record.members, record.removed)
        if last is not None and last[1] >= LATE_MS:
            member, later = last
            yield f"{_member(member)} was last, {spell(later)} after the one before."
        yield from _came_and_went(record)


def _came_and_went(record: RebalanceRecord) -> Iterator[str]:
    """Members that went or joined meanwhile, but for the one with which the rebalance began."""
    gone: dict[str, list[RemovedMember]] = {}
    for removed in record.removed:
        if removed.member_id != record.member_id or record.cause not in _GONE:
            gone.setdefault(removed.cause, []).append(removed)
    for cause, members in gone.items():
        who = listed(list(map(_member, members)), NAMED_MAX)
        if cause.startswith(LEFT):
            yield f"{who} {printable(cause)}."
        else:
            yield f"{who} {'was' if len(members) == 1 else 'were'} removed: {cause}."
    yield from _last_seen(record)
    more = record.removed_count - len(record.removed)
    if more > 0:
        yield f"{count_of(more, 'more member')} left or {'was' if more == 1 else 'were'} removed."
    named = {record.member_id, *(removed.member_id for removed in record.removed)}
    new = [_member(m) for m in record.members if m.is_new and m.member_id not in named]
    if new:
        yield f"{listed(new, NAMED_MAX)} joined."


def _last_seen(record: RebalanceRecord) -> Iterator[str]:
    """Sentences about members that did not leave by themselves, unless the moves say it."""
    named = {move.from_member_id for move in _named_moves(record) if _evidence(move)}
    for removed in record.removed[:NAMED_MAX]:
        known = removed.last_seen_ms > 0 and removed.code not in (LEFT, "call_cancelled")
        if known and removed.member_id not in named:
            yield f"{_member(removed)} was last seen at {time_of_day(removed.last_seen_ms)}."


_GONE = (
    RebalanceCause.MEMBER_LEFT.value,
    RebalanceCause.ADMIN.value,
)


def _sync_phase(record: RebalanceRecord) -> Iterator[str]:
    if record.synced_at_ms < 0:
        return
    leader = next((m for m in record.members if m.member_id == record.leader), None)
    who = "the leader" if leader is None else f"the leader, {_member(leader)},"
    came = f"The assignment came from {who} after"
    computed = spell(record.synced_at_ms - record.joined_at_ms)
    if record.outcome != "completed":
        yield f"{came} {computed}, and was not stored."
    else:
        stored = spell(record.ended_at_ms - record.synced_at_ms)
        yield f"{came} {computed} and was durable {stored} later."


def _cost(record: RebalanceRecord) -> Iterator[str]:
    if record.partitions_moved < 0:
        return
    yield f"{count_of(record.partitions_moved, 'partition')} changed owners."
    count, longest_ms = record.unowned_partitions, record.unowned_ms_max
    unowned = count_of(count, "partition")
    is_open = any(move.unowned_ms_max < 0 for move in record.moves)
    if count and (longest_ms or is_open):
        was = "was" if count == 1 else "were"
        how_long = spell_between(record.unowned_ms_max_at_least, -1 if is_open else longest_ms)
        which = " for" if _have_equal_times(record) else ", the longest of them for"
        yield f"{unowned} {was} not worked on{which} {how_long}."
    if record.partitions_taken_away:
        taken = count_of(record.partitions_taken_away, "partition")
        following = max(record.cooperative_round, 1) + 1
        yield f"It took {taken} away; round {following} hands out what is given back."


def _have_equal_times(record: RebalanceRecord) -> bool:
    spans = {(move.unowned_ms_min, move.unowned_ms_max) for move in record.moves}
    return len(spans) == 1 and not record.partitions_left_out


def _moves(record: RebalanceRecord) -> Iterator[str]:
    named = _named_moves(record)
    are_equal = _have_equal_times(record)
    changes: dict[str, list[str]] = {}
    for move in named:
        where = partitions_of(move.topic, move.partitions, move.partition_count)
        former = name_of(move.from_member_id, move.from_client_id)
        new = name_of(move.to_member_id, move.to_client_id)
        how_long = "" if are_equal else _idle_time(move)
        waits = "" if move.is_fetched else f"; {new} had not fetched its assignment yet"
        changes.setdefault(f"went from {former} to {new}{how_long}{waits}.", []).append(where)
    yield from (f"{', '.join(some)} {went}" for went, some in changes.items())
    more = record.partitions_moved - sum(move.partition_count for move in named)
    if more > 0:
        yield f"{count_of(more, 'more partition')} changed owners."
    yield from dict.fromkeys(filter(None, map(_evidence, named)))
    stayed = [move for move in record.moves if not move.has_moved and move.unowned_ms_max]
    if stayed:
        count = sum(move.partition_count for move in stayed)
        shortest_ms = max(move.unowned_ms_min for move in stayed)
        longest_ms = max(move.unowned_ms_max for move in stayed)
        moved, owners = count_of(count, "partition"), "its owner" if count == 1 else "their owners"
        yield (
            f"{moved} stayed with {owners}, and stood idle while the group gathered, for up to "
            f"{spell(max(shortest_ms, longest_ms))}."
        )


def _named_moves(record: RebalanceRecord) -> list[PartitionMove]:
    return [move for move in record.moves if move.has_moved][:NAMED_MAX]


def _idle_time(move: PartitionMove) -> str:
    if not move.unowned_ms_max and not move.unowned_ms_min:
        return ""
    return f", not worked on for {spell_between(move.unowned_ms_min, move.unowned_ms_max)}"


def _evidence(move: PartitionMove) -> str:
    """Sentence that says how it is known when the former owner stopped; empty if it did not."""
    how = _KNOWN_BY.get(move.known_by, "") if _idle_time(move) else ""
    if how and move.stopped_latest_ms < 0:
        how = _STILL_HELD
    earliest, latest = (
        time_of_day(at_ms) if at_ms >= 0 else ""
        for at_ms in (move.stopped_earliest_ms, move.stopped_latest_ms)
    )
    former = name_of(move.from_member_id, move.from_client_id)
    return f"{how.format(who=former, earliest=earliest, latest=latest)}." if how else ""


_WAS_AWAY = (
    "{who} is known to have worked at {earliest}, and was heard again by {latest}; it may have "
    "worked without commits meanwhile"
)
_KNOWN_BY = {
    StopKnownBy.LAST_SEEN.value: "{who} was last seen at {earliest}, and its next heartbeat was "
    "due at {latest}",
    StopKnownBy.INTERVAL_UNKNOWN.value: "{who} was last seen at {earliest}, and its next "
    "heartbeat was due at {latest} if it sends three in a session",
    StopKnownBy.NOT_SEEN.value: "{who} was not heard since this node took the group over",
    StopKnownBy.LEFT.value: "{who} left at {latest}",
    StopKnownBy.REMOVED.value: "{who} was alive, and heard of its removal by {latest}",
    StopKnownBy.REJOINED.value: "{who} heard of it by {earliest} and joined at {latest}",
    StopKnownBy.GAVE_UP.value: "{who} gave up by itself at {latest}; it is known to have worked at "
    "{earliest}",
    StopKnownBy.TAKEN_AWAY.value: "{who} gave back what was taken between {earliest} and {latest}",
    StopKnownBy.NO_COORDINATOR.value: _WAS_AWAY,
    StopKnownBy.SAID.value: "{who} said after the outage that it stopped at {latest}",
    StopKnownBy.SILENT.value: _WAS_AWAY,
}
_STILL_HELD = "{who} had not given back yet what was taken at {earliest}"


def _protocol(record: RebalanceRecord, before: Sequence[RebalanceRecord]) -> Iterator[str]:
    earlier = next((r.protocol for r in before if r.protocol), "")
    if record.protocol and earlier and earlier != record.protocol:
        yield (
            f"The group now uses {quoted(record.protocol)} instead of {quoted(earlier)}: "
            "a group uses a protocol that all its members support."
        )


def _member(member: RebalanceMember | RemovedMember) -> str:
    return name_of(member.member_id, member.client_id, member.client_host, member.client_software)
