"""Exponential back-off for members that attach and go many times a second.

A stream that lives for less than a second counts against its name; for a member without a name,
against its process, and against its address for processes that are new. The first few are free,
since a network may be bad for a moment. A refused Attach writes nothing and does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.sessions.member import SessionMember
from coordinator.core.step import Step
from coordinator.core.values.errors import ErrorCode, Refused
from coordinator.core.values.events import SessionMemberFlaps
from coordinator.core.values.ids import NO_TIME
from coordinator.core.values.records import SessionMemberStored
from coordinator.core.values.session_messages import Attach

SHORT_MS = 1_000
"""Streams that live for less than this count."""
FREE_RESTARTS = 5
BACK_OFF_MS, MAX_BACK_OFF_MS = 100, 10_000
FORGOTTEN_AFTER_MS = 10_000
"""After the end of a back-off."""
LOG_EVERY_MS = 60_000
KEYS = 1_000
"""Names and addresses that are remembered in a group."""


@dataclass(slots=True)
class RestartBackoff:
    """Back-off of a name or address. `until_ms`: Attaches refused. `reported_ms`: last event."""

    count: int = 0
    until_ms: int = NO_TIME
    reported_ms: int = NO_TIME


def keys_of(of: SessionMemberStored | Attach) -> tuple[str, ...]:
    """Keys against which a short stream counts."""
    if of.name:
        return (f"name {of.name}",)
    return f"process {of.incarnation}", f"address {of.client_host}"


def check(table: dict[str, RestartBackoff], key: str, now_ms: int) -> None:
    """Refuse an Attach that comes too early.

    Raises:
        Refused: COORDINATOR_NOT_AVAILABLE, with `retry_after_ms`.
    """
    backoff = table.get(key)
    if backoff is None:
        return
    if now_ms > backoff.until_ms + FORGOTTEN_AFTER_MS:
        del table[key]
    elif now_ms < backoff.until_ms:
        raise Refused(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{key} came and went {backoff.count} times in a row; wait",
            retry_after_ms=backoff.until_ms - now_ms,
        )


def note(table: dict[str, RestartBackoff], member: SessionMember, step: Step) -> None:
    """Note that the stream of a member has ended. A back-off makes an event once a minute."""
    if step.now_ms - member.stream_since_ms >= SHORT_MS:
        return
    record, unsent = member.record, 0
    for key in keys_of(member.record):
        backoff = table.pop(key, None) or RestartBackoff()
        table[key] = backoff  # The newest is last.
        backoff.count += 1
        backoff.until_ms = step.now_ms
        if backoff.count > FREE_RESTARTS:
            shift = min(backoff.count - FREE_RESTARTS - 1, 10)
            backoff.until_ms += min(BACK_OFF_MS << shift, MAX_BACK_OFF_MS)
            if backoff.reported_ms == NO_TIME or step.now_ms - backoff.reported_ms >= LOG_EVERY_MS:
                backoff.reported_ms, unsent = step.now_ms, max(unsent, backoff.count)
    if unsent:
        step.out.note(
            SessionMemberFlaps(
                record.group_id,
                record.member_id,
                record.name,
                record.client_id,
                record.client_host,
                unsent,
            )
        )
    while len(table) > KEYS:
        del table[next(iter(table))]
