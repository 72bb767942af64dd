"""Sessions by beats: a node renews its own, and those that watch it judge by their own clocks.

For stores whose own leases are too coarse, or whose clock decides nothing. A node that has not
renewed for a whole session timeout, as seen by an observer that was itself in touch with the store
all that time, is removed under the condition that it has not renewed after all. When the store
hangs, nobody is removed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from coordinator.storage.coordination import NodeIdTaken, Session, loop_time_s
from coordinator.storage.log import Ambiguous, LogUnavailable

Beat = TypeVar("Beat")
RENEWALS = 8
"""Renewals in the time of one session. A node answers nothing once the last successful one is 0.8
sessions old; with 8, etcd may take 1.35 s of the default 2 s to elect a leader before that, and it
takes 1 to 1.4 s with its own defaults."""
LOOKS = 16
"""Checks of the other nodes' renewals in the time of one session."""


async def renew(session: Session, beat: Callable[[], Awaitable[bool]]) -> None:
    """Renew until another session takes the place, or no renewal has succeeded in time.

    Args:
        beat: renews; False: the session has ended.
    """
    while not session.lost.is_set():
        due_at = session.renewed_at + session.timeout_s / RENEWALS
        # After a failure the next renewal is due at once, but for a short pause.
        pause_s = session.timeout_s / LOOKS
        await asyncio.sleep(max(due_at - loop_time_s(), pause_s))
        sent_at = loop_time_s()
        with contextlib.suppress(LogUnavailable, Ambiguous):
            if await beat():
                session.renewed_at = sent_at
            else:
                session.lost.set()
        if loop_time_s() - session.renewed_at >= session.timeout_s:
            session.lost.set()


async def outlive(
    number: int,
    beat: Beat,
    timeout_s: float,
    look: Callable[[], Awaitable[tuple[Beat | None, str]]],
) -> None:
    """Wait until another process of a node id has not renewed for a whole session timeout.

    Args:
        beat: its last one, as read.
        look: its last one now, and its incarnation; None: it has ended.
    Raises:
        NodeIdTaken: it has renewed.
    """
    since = loop_time_s()
    while loop_time_s() - since < timeout_s:
        asked_at = loop_time_s()
        await asyncio.sleep(timeout_s / LOOKS)
        known, incarnation = await look()
        if known is None:
            return
        if known != beat:
            raise NodeIdTaken(number, f" (incarnation {incarnation})")
        if loop_time_s() - asked_at > timeout_s / 2:
            since = loop_time_s()  # The store hung, and perhaps for the other one, too.


async def judge_others(
    session: Session,
    look: Callable[[], Awaitable[Mapping[int, Beat]]],
    take_out: Callable[[int, Beat], Awaitable[None]],
) -> None:
    """Remove nodes that have not renewed for a whole session timeout.

    Args:
        look: the last beat of each node.
        take_out: removes a node, if this is still its last beat.
    """
    seen: dict[int, tuple[Beat, float]] = {}  # The beat, and when it was first seen.
    while not session.lost.is_set():
        await asyncio.sleep(session.timeout_s / LOOKS)
        with contextlib.suppress(LogUnavailable, Ambiguous):
            beats = await look()
            now = loop_time_s()
            if now - session.renewed_at > session.timeout_s / 2:
                seen.clear()  # This node lost touch itself, so it cannot judge others.
            for number, beat in beats.items():
                known, since = seen.setdefault(number, (beat, now))
                if known != beat:
                    seen[number] = (beat, now)
                elif now - since >= session.timeout_s:
                    await take_out(number, beat)
