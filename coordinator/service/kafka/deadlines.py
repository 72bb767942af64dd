"""Debts of clients, with deadlines: the rest of a frame, the reading of answers, a first request.

A client owes only what it has begun, so most connections are in no table and cost no timer. All
have the same time for it, so a table in the order of entries is in the order of deadlines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Generic, TypeVar

Debtor = TypeVar("Debtor")
LOOK_S = 1.0
"""Seconds between two looks for overdue connections, while anybody owes anything."""


class Owed(StrEnum):
    """Debt of a client, in words for the log."""

    HELLO = "did not authenticate, or make a request,"
    REQUEST = "did not finish its request"
    ANSWERS = "did not read its answers"


class Deadlines(Generic[Debtor]):
    """Deadlines of connections.

    Args:
        limit_s: time that everybody has, in seconds.
        on_overdue: called once for each debtor, with its first debt that is overdue.
    """

    def __init__(self, limit_s: float, on_overdue: Callable[[Debtor, Owed], None]) -> None:
        self._limit_s = limit_s
        self._on_overdue = on_overdue
        self._due: dict[Owed, dict[Debtor, float]] = {owed: {} for owed in Owed}
        self._looking: asyncio.TimerHandle | None = None

    def expect(self, debtor: Debtor, owed: Owed) -> None:
        """Start the deadline of a debt."""
        loop = asyncio.get_running_loop()
        self._due[owed].setdefault(debtor, loop.time() + self._limit_s)
        if self._looking is None:
            self._looking = loop.call_later(LOOK_S, self._check)

    def settle(self, debtor: Debtor, *settled: Owed) -> None:
        """Drop debts that were paid."""
        for owed in settled:
            self._due[owed].pop(debtor, None)

    def all(self, owed: Owed) -> list[Debtor]:
        """Debtors of a kind, those of the longest time first."""
        return list(self._due[owed])

    def stop(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def _check(self) -> None:
        self._looking = None
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for owed, table in self._due.items():
            while table and (first := next(iter(table.items())))[1] <= now_s:
                debtor, _ = first
                self.settle(debtor, *Owed)  # It ends for the first of them.
                self._on_overdue(debtor, owed)
        if any(self._due.values()):
            self._looking = loop.call_later(LOOK_S, self._check)
