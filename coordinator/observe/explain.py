"""A rebalance in plain sentences: its cause, the slow members, its cost, and advice.

Names and reasons come from clients, so every one is made printable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from coordinator.core.events import RebalanceCause, RefusedJoin
from coordinator.core.records import RebalanceMember, RebalanceRecord
from coordinator.printable import printable

SLOW_SHARE = 0.5
"""Share of the join phase that one member must take before there is advice about it."""
SLOW_MS = 500
SHORT_SESSION_MS = 10_000
COMES_BACK_MS = 60_000
OFTEN = 3
NAMED_MAX = 5


def explain(record: RebalanceRecord, before: Sequence[RebalanceRecord] = ()) -> list[str]:
    """Sentences about a rebalance, the advice last.

    Args:
        before: earlier rebalances of the group, newest first.
    """
    return [
        _headline(record),
        _cause(record),
        *_join_phase(record),
        *_rest(record),
        *_cost(record),
        *_protocol(record, before),
        *_advice(record, before),
    ]


def last_to_join(record: RebalanceRecord) -> tuple[RebalanceMember, int] | None:
    """The member that joined last, and its delay (ms) after the one before it; None if alone."""
    if len(record.members) < 2:
        return None
    one_before, last = record.members[-2:]
    return last, last.joined_at_ms - one_before.joined_at_ms


def explain_refusal(refused: RefusedJoin) -> str:
    """One or more refused joins of a client in plain sentences, with advice."""
    at = datetime.fromtimestamp(refused.last_at_ms / 1_000, UTC)
    who = _name("", refused.client_id, refused.client_host)
    what = "1 join" if refused.count == 1 else f"{refused.count} joins"
    error = refused.error.name
    told = f"{what} of {who} refused, the last at {at:%H:%M:%S} UTC: {error}."
    if error != "INCONSISTENT_GROUP_PROTOCOL":
        return told
    offered = ", ".join(map(printable, refused.protocols)) or "nothing"
    needed = ", ".join(map(printable, refused.needed)) or "none of that type"
    return (
        f"{told} It offers {offered}; the members support {needed}. Advice: configure a protocol "
        "that the members support, or change the group's protocol in two rolling restarts: first "
        "with both protocols, then with the new one alone."
    )


# --- The record ------------------------------------------------------------------------------


def _headline(record: RebalanceRecord) -> str:
    at = datetime.fromtimestamp(record.started_at_ms / 1_000, UTC)
    took = spell(record.ended_at_ms - record.started_at_ms)
    how = {"completed": f"completed in {took}", "interrupted": f"interrupted after {took}"}
    return (
        f"Generation {record.generation_before} to {record.generation_after} of group "
        f"{_quoted(record.group_id)}, {at:%Y-%m-%d %H:%M:%S} UTC: "
        f"{how.get(record.outcome, f'{record.outcome} after {took}')}, "
        f"{_count(record.member_count, 'member')}."
    )


_CAUSES = {
    RebalanceCause.MEMBER_JOINED: "{who} joined{why}",
    RebalanceCause.MEMBER_LEFT: "{who} left{why}",
    RebalanceCause.ADMIN: "an operator removed {who}{why}",
    RebalanceCause.SESSION_EXPIRED: "nothing was heard of {who} for its whole session timeout",
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
_CAUSE_SENTENCES = {cause.value: f"It began because {words}." for cause, words in _CAUSES.items()}


def _cause(record: RebalanceRecord) -> str:
    who = _name(record.member_id, record.client_id, record.client_host)
    why = f" and said: {printable(record.reason)}" if record.reason else ""
    if record.cause not in _CAUSE_SENTENCES:  # A newer version's.
        return f"It began because of: {record.cause}."
    return _CAUSE_SENTENCES[record.cause].format(who=who, why=why)


def _join_phase(record: RebalanceRecord) -> Iterator[str]:
    took = spell(record.joined_at_ms - record.started_at_ms)
    if record.joined_at_ms < 0:
        missing = f"{_count(len(record.members), 'member')} had joined"
        yield f"No new generation was formed: {missing} when the rebalance ended."
    elif record.was_initial:
        yield f"The join phase waited {took} for more first members: the initial delay."
    else:
        yield f"The join phase took {took}."
        last = last_to_join(record)
        if last is not None and last[1] > 0:
            member, later = last
            yield f"{_member(member)} was last, {spell(later)} after the one before."
        yield from _came_and_went(record)


def _came_and_went(record: RebalanceRecord) -> Iterator[str]:
    """Members that went or joined meanwhile, but for the one with which the rebalance began."""
    for removed in record.removed:
        who = _name(removed.member_id, removed.client_id, removed.client_host)
        if not removed.cause.startswith("left"):
            yield f"{who} was removed: {removed.cause}."
        elif record.cause != _LEFT or removed.member_id != record.member_id:
            yield f"{who} {printable(removed.cause)}."
    told = {record.member_id, *(removed.member_id for removed in record.removed)}
    new = [_member(m) for m in record.members if m.is_new and m.member_id not in told]
    if new:
        more = f" and {len(new) - NAMED_MAX} more" if len(new) > NAMED_MAX else ""
        yield f"{', '.join(new[:NAMED_MAX])}{more} joined."


_LEFT = RebalanceCause.MEMBER_LEFT.value


def _rest(record: RebalanceRecord) -> Iterator[str]:
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
    yield f"{_count(record.partitions_moved, 'partition')} changed owners."
    if record.unowned_partitions:
        unowned = _count(record.unowned_partitions, "partition")
        yield f"{unowned} had no owner, for up to {spell(record.unowned_ms_max)}."


def _protocol(record: RebalanceRecord, before: Sequence[RebalanceRecord]) -> Iterator[str]:
    earlier = next((r.protocol for r in before if r.protocol), "")
    if record.protocol and earlier and earlier != record.protocol:
        yield (
            f"The group now uses {_quoted(record.protocol)} instead of {_quoted(earlier)}: "
            "a group uses a protocol that all its members support."
        )


# --- Advice ---------------------------------------------------------------------------------


def _advice(record: RebalanceRecord, before: Sequence[RebalanceRecord]) -> Iterator[str]:
    yield from _about_slowness(record)
    yield from _about_sessions(record)
    yield from _about_restarts(record, before)
    yield from _about_flapping(record, before)
    is_eager = record.protocol and "cooperative" not in record.protocol
    if is_eager and record.unowned_ms_max >= SLOW_MS:
        yield (
            f"Advice: with {_quoted(record.protocol)} everybody stops while the group gathers; "
            "with 'cooperative-sticky' members work on with what they keep."
        )


def _about_slowness(record: RebalanceRecord) -> Iterator[str]:
    last = last_to_join(record)
    if last is None or record.was_initial or record.joined_at_ms < 0:
        return
    member, later = last
    phase = record.joined_at_ms - record.started_at_ms
    if later >= SLOW_MS and later >= SLOW_SHARE * phase:
        whole = record.ended_at_ms - record.started_at_ms
        yield (
            f"Advice: {_member(member)} took {spell(later)} of the {spell(whole)}. A member hears "
            "of a rebalance with its next heartbeat and joins when its work lets it: let it poll "
            "more often, or work in smaller pieces."
        )


def _about_sessions(record: RebalanceRecord) -> Iterator[str]:
    has_expired = any(r.cause == "session expired" for r in record.removed)
    short = [m for m in record.members if 0 <= m.session_timeout_ms < SHORT_SESSION_MS]
    if has_expired and short:
        timeout = spell(short[0].session_timeout_ms)
        yield (
            f"Advice: sessions last {timeout} here; a pause of that length (garbage collection, a "
            "slow disk, a network that hiccups) costs a rebalance. 10 s and more are common."
        )


def _about_restarts(record: RebalanceRecord, before: Sequence[RebalanceRecord]) -> Iterator[str]:
    """Advice for a client that left and came back under the same name."""
    if record.cause != RebalanceCause.MEMBER_JOINED.value or not record.client_id:
        return
    for earlier in before:
        if record.started_at_ms - earlier.ended_at_ms > COMES_BACK_MS:
            return
        if any(r.client_id == record.client_id for r in earlier.removed):
            since = spell(record.started_at_ms - earlier.started_at_ms)
            yield (
                f"Advice: {_quoted(record.client_id)} had gone {since} before. With an instance id "
                "of its own (group_instance_id) a restart within the session causes no rebalance."
            )
            return


def _about_flapping(record: RebalanceRecord, before: Sequence[RebalanceRecord]) -> Iterator[str]:
    gone = Counter(r.client_id for each in (record, *before) for r in each.removed)
    count = gone[record.client_id]
    if record.client_id and count >= OFTEN:
        yield (
            f"Advice: {_quoted(record.client_id)} has gone {count} times in the last "
            f"{len(before) + 1} rebalances. Look at it first."
        )


# --- Words ------------------------------------------------------------------------------------


def spell(ms: int) -> str:
    """A duration for people: 12 ms, 4.1 s, 3 min 20 s."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1_000:.1f} s"
    return f"{ms // 60_000} min {ms % 60_000 // 1_000} s"


def _member(member: RebalanceMember) -> str:
    return _name(member.member_id, member.client_id, member.client_host)


def _name(member_id: str, client_id: str, client_host: str) -> str:
    """The client id if there is one, else the member id; with the host."""
    name = printable(client_id or member_id or "an unknown member")
    return f"{name} ({printable(client_host.removeprefix('/'))})" if client_host else name


def _quoted(text: str) -> str:
    return f"'{printable(text)}'"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
