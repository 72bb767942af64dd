"""Advice about a rebalance, for those who run the group. Each is given once.

An advice is about a group, or a client of it, and a value that can be changed: a session timeout, a
protocol. While an earlier rebalance in the journal with the same cause has given the same, it is
not given again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from coordinator.core.values.events import NO_PROGRESS, RebalanceCause
from coordinator.core.values.rebalance_journal import RebalanceRecord
from coordinator.observe.spelling import name_of, quoted, spell

SLOW_SHARE = 0.5
"""Share of the join phase that one member must take before there is advice about it."""
SLOW_MS = 500
SHORT_SESSION_MS = 10_000
COMES_BACK_MS = 60_000
OFTEN = 3
COOPERATIVE = "cooperative"


class _Gone(Protocol):
    @property
    def member_id(self) -> str: ...


class _Joined(_Gone, Protocol):
    @property
    def joined_at_ms(self) -> int: ...


M = TypeVar("M", bound=_Joined)


class AdviceCode(Enum):
    """Kinds of advice; the values are codes of the contract."""

    SLOW_TO_JOIN = "slow_to_join"
    SHORT_SESSION = "short_session"
    STATIC_MEMBERSHIP = "static_membership"
    UNSTABLE_MEMBER = "unstable_member"
    COOPERATIVE_PROTOCOL = "cooperative_protocol"


@dataclass(frozen=True, slots=True)
class Advice:
    """One advice: a sentence, and what it is about. See `Advice` in the contract for its fields."""

    code: AdviceCode
    text: str
    client_id: str = ""
    duration_ms: int = 0
    count: int = 0
    key: str = ""
    """A value; when it changes, the same advice is given again."""


def new_advice(record: RebalanceRecord, before: Sequence[RebalanceRecord]) -> list[Advice]:
    """Advice that no earlier rebalance with the same cause has given.

    Args:
        before: earlier rebalances of the group, newest first.
    """
    if record.is_return:
        return []
    before = [earlier for earlier in before if not earlier.is_return]
    current = list(_advice(record, before))
    known = {
        _about(advice)
        for number, earlier in enumerate(before if current else ())
        if earlier.cause == record.cause
        for advice in _advice(earlier, before[number + 1 :])
    }
    return [advice for advice in current if _about(advice) not in known]


def slowest_to_join(joined: Sequence[M], removed: Iterable[_Gone]) -> tuple[M, int] | None:
    """The member that joined last and is still there, and its delay (ms) after the one before it;
    None if there were no two.

    Args:
        joined: members in the order in which they joined.
    """
    gone = {member.member_id for member in removed}
    stayed = [member for member in joined if member.member_id not in gone]
    if len(stayed) < 2:
        return None
    one_before, last = stayed[-2:]
    return last, last.joined_at_ms - one_before.joined_at_ms


# --- Inside -------------------------------------------------------------------------------------


def _about(advice: Advice) -> tuple[AdviceCode, str, str]:
    return advice.code, advice.client_id, advice.key


def _advice(record: RebalanceRecord, before: Sequence[RebalanceRecord]) -> Iterator[Advice]:
    yield from _about_slowness(record)
    yield from _about_sessions(record)
    yield from _about_restarts(record, before)
    yield from _about_flapping(record, before)
    yield from _about_protocol(record)


def _about_slowness(record: RebalanceRecord) -> Iterator[Advice]:
    last = slowest_to_join(record.members, record.removed)
    if last is None or record.was_initial or record.joined_at_ms < 0:
        return
    member, later = last
    phase = record.joined_at_ms - record.started_at_ms
    if later >= SLOW_MS and later >= SLOW_SHARE * phase:
        who = name_of(member.member_id, member.client_id, member.client_host)
        whole = spell(record.ended_at_ms - record.started_at_ms)
        text = (
            f"Advice: {who} took {spell(later)} of the {whole}. A member hears of a rebalance with "
            "its next heartbeat, and joins once its handlers have ended what they were doing: have "
            "them commit after smaller pieces of work, or shorten the heartbeat interval."
        )
        client = member.client_id or member.member_id
        yield Advice(AdviceCode.SLOW_TO_JOIN, text, client, duration_ms=later)


def _about_sessions(record: RebalanceRecord) -> Iterator[Advice]:
    if record.taken_over_at_ms:
        return  # Nobody could hear them.
    has_expired = any(r.cause == "session expired" for r in record.removed)
    short = [m for m in record.members if 0 <= m.session_timeout_ms < SHORT_SESSION_MS]
    if has_expired and short:
        timeout_ms = short[0].session_timeout_ms
        text = (
            f"Advice: sessions last {spell(timeout_ms)} here; a pause of that length (garbage "
            "collection, a slow disk, a network that hiccups) costs a rebalance. 10 s and more are "
            "common."
        )
        yield Advice(AdviceCode.SHORT_SESSION, text, duration_ms=timeout_ms, key=str(timeout_ms))


def _about_restarts(record: RebalanceRecord, before: Sequence[RebalanceRecord]) -> Iterator[Advice]:
    """Advice for a client that left and came back under the same name.

    One that left since its program did not poll was not restarted, and says so as it comes back.
    """
    if record.cause != RebalanceCause.MEMBER_JOINED.value or not record.client_id:
        return
    if record.reason.startswith(NO_PROGRESS):
        return
    for earlier in before:
        if record.started_at_ms - earlier.ended_at_ms > COMES_BACK_MS:
            return
        if any(r.client_id == record.client_id for r in earlier.removed):
            gone_ms = record.started_at_ms - earlier.started_at_ms
            text = (
                f"Advice: {quoted(record.client_id)} had gone {spell(gone_ms)} before. With an "
                "instance id of its own (group_instance_id) a restart within the session causes no "
                "rebalance."
            )
            client = record.client_id
            yield Advice(AdviceCode.STATIC_MEMBERSHIP, text, client, duration_ms=gone_ms)
            return


def _about_flapping(record: RebalanceRecord, before: Sequence[RebalanceRecord]) -> Iterator[Advice]:
    gone = Counter(r.client_id for earlier in (record, *before) for r in earlier.removed)
    count = gone[record.client_id]
    if record.client_id and count >= OFTEN:
        text = (
            f"Advice: {quoted(record.client_id)} has gone {count} times in the last "
            f"{len(before) + 1} rebalances. Look at it first."
        )
        yield Advice(AdviceCode.UNSTABLE_MEMBER, text, record.client_id, count=count)


def _about_protocol(record: RebalanceRecord) -> Iterator[Advice]:
    """Advice for an eager group whose members that stay had to stop."""
    protocol = record.protocol
    idle_ms = max((m.unowned_ms_min for m in record.moves if not m.has_moved), default=0)
    if protocol and COOPERATIVE not in protocol and idle_ms >= SLOW_MS:
        text = (
            f"Advice: with {quoted(protocol)} everybody stops while the group gathers; with "
            "'cooperative-sticky' members work on with what they keep."
        )
        code = AdviceCode.COOPERATIVE_PROTOCOL
        yield Advice(code, text, duration_ms=idle_ms, key=protocol)
