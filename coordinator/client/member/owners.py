"""Owners of a member: which holdings were handed out to the task or thread that calls.

The one that polls has been handed out what its last poll told. A task that it makes inherits that,
as of then, since tasks inherit context variables: work that began under an earlier holding does not
commit under a later one, also if it names none. Another thread has been handed out nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from dataclasses import dataclass

from coordinator.client.errors import StaleMember
from coordinator.client.member.ledger import Holdings, Ledger


@dataclass(frozen=True, slots=True)
class _HandedOut:
    """Holdings that an owner was handed out by its last poll."""

    owners: Owners
    poller: object
    holdings: Holdings


_HANDED_OUT: contextvars.ContextVar[_HandedOut | None] = contextvars.ContextVar(
    "handed_out", default=None
)
"""Set for the member that was polled last in this context."""


class Owners:
    """Owners of one member."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._poller: object = None

    def polled(self) -> None:
        """Note that the caller has been told everything."""
        self._poller = _caller()
        _HANDED_OUT.set(_HandedOut(self, self._poller, self._ledger.handed_out))

    def handed_out(self) -> Holdings:
        """The holdings of the caller, for a commit that shows none.

        Raises:
            StaleMember: nothing was handed out to this thread.
        """
        seen, caller = _HANDED_OUT.get(), _caller()
        if seen is not None and seen.owners is self:
            is_poller = caller is seen.poller or caller is self._poller
            return self._ledger.handed_out if is_poller else seen.holdings
        if isinstance(self._poller, threading.Thread) and caller is not self._poller:
            raise StaleMember(
                "nothing was sent, for nothing was handed out to this thread: pass "
                "holdings=[member.holding(partition)], taken when the work began"
            )
        return self._ledger.handed_out


def _caller() -> object:
    """The task that runs, or else the thread."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return task or threading.current_thread()
