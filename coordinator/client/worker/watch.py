"""Watch of the handlers' loop: a coroutine that blocks it is named in a warning, with its stack."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable

from coordinator.client.worker.runs import Runs, stack_of_thread

EVERY_S = 0.5
BLOCKED_S = 2.0
"""Time without an answer of the loop after which it counts as blocked."""


class LoopWatch:
    """Watch of one loop, from another one.

    Args:
        log: logs a line at a level.
        blocked: called once each time that the loop is found blocked.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        runs: Runs,
        log: Callable[[int, str], None],
        blocked: Callable[[], object],
    ) -> None:
        self._loop, self._runs, self._log, self._blocked = loop, runs, log, blocked
        self._thread_id = threading.get_ident()
        self._is_out = self._is_told = False
        self._asked_at = 0.0
        self.blocked_by = ""
        """Task whose turn it is on the loop, if it is blocked; else empty."""

    async def run(self) -> None:
        """Ask the loop again and again; ends when it is closed."""
        while True:
            if not self._is_out:
                self._is_out, self._asked_at = True, time.monotonic()
                try:
                    self._loop.call_soon_threadsafe(self._answer)
                except RuntimeError:
                    return  # It is closed.
            await asyncio.sleep(EVERY_S)
            self._look()

    def _look(self) -> None:
        waited_s = time.monotonic() - self._asked_at
        is_blocked = self._is_out and waited_s >= BLOCKED_S
        self.blocked_by = self._runs.current_on_loop() if is_blocked else ""
        if is_blocked and not self._is_told:
            self._is_told = True
            self._blocked()
            self._log(
                logging.WARNING,
                f"the event loop of the handlers has been blocked for {waited_s:.1f} s by "
                f"{self.blocked_by}: its other handlers stand still; call what blocks "
                f"with asyncio.to_thread{stack_of_thread(self._thread_id)}",
            )
        elif self._is_told and not self._is_out:
            self._is_told = False
            self._log(logging.INFO, "the event loop of the handlers runs again")

    def _answer(self) -> None:
        self._thread_id = threading.get_ident()
        self._is_out = False
