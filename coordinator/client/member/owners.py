"""Owners of a member: which holdings were handed out to the task or thread that calls.

The one that polls has been handed out what its last poll returned. A task that it makes inherits
that, as of then, since tasks inherit context variables: work that began under an earlier holding
does not commit under a later one, also if it names none. Another thread has been handed out
nothing.

A poll counts for whoever calls it, though another task may await it: `asyncio.wait_for` makes one
before Python 3.12.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from coordinator.client.errors import StaleMember
from coordinator.client.member.ledger import Holdings, Ledger


@dataclass(slots=True)
class Poll:
    """One poll; `holdings`: what it has returned, or until it returns the one before it."""

    by: object
    holdings: Holdings


_POLLS: contextvars.ContextVar[Mapping[Owners, Poll]] = contextvars.ContextVar("polls")
"""The last poll of each member in this context. Replaced, never changed."""
_NOTHING: Holdings = {}


class Owners:
    """Owners of one member."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._last: object = None
        """The one whose poll has returned last."""
        self._by_caller: WeakKeyDictionary[object, Holdings] = WeakKeyDictionary()
        """Holdings that those who poll were handed last, by themselves or by tasks of theirs."""

    def poll_begins(self) -> Poll:
        """Note that the caller polls."""
        polls = WeakKeyDictionary(_POLLS.get({}))
        before = polls.get(self)
        if before is not None and _runs(before.by):
            # A task that polls, and was made by one that does, does so on its behalf.
            by, events = before.by, self._by_caller.get(before.by, before.holdings)
        else:
            by, events = _caller(), _NOTHING
        poll = polls[self] = Poll(by, events)
        _POLLS.set(polls)
        return poll

    def poll_ends(self, poll: Poll) -> None:
        """Note that whoever polls has been handed everything."""
        self._last = poll.by
        poll.holdings = self._by_caller[poll.by] = self._ledger.handed_out

    def handed_out(self) -> Holdings:
        """The holdings of the caller, for a commit that shows none.

        Raises:
            StaleMember: nothing was handed out to this thread.
        """
        caller = _caller()
        if caller in self._by_caller:
            return self._by_caller[caller]
        poll = _POLLS.get({}).get(self)
        if poll is not None:
            return poll.holdings
        if isinstance(self._last, threading.Thread):
            raise StaleMember(
                "nothing was sent, for nothing was handed out to this thread: pass "
                "holdings=[member.holding(partition)], taken when the work began"
            )
        return self._ledger.handed_out


def _runs(owner: object) -> bool:
    return not owner.done() if isinstance(owner, asyncio.Task) else True


def _caller() -> object:
    """The task that runs, or else the thread."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return task or threading.current_thread()
