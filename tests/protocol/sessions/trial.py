"""One run of a case: what is said in it, and what is asked of its subject."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

TOPIC = "t"
"""The topic that all cases speak of."""
TOLERANCE_S = 0.01
"""Clocks tick in milliseconds, here and there."""


def now_s() -> float:
    """The clock of the loop: virtual time works as well as real time."""
    return asyncio.get_running_loop().time()


class Failed(AssertionError):
    """The subject broke a rule. The message says which."""


class TrialTranscript:
    """Lines about one case, with times."""

    def __init__(self) -> None:
        self._began = now_s()
        self.lines: list[str] = []

    def add(self, text: str) -> None:
        """Add a line."""
        self.lines.append(f"{now_s() - self._began:8.3f}  {text}")


def brief(message: object) -> str:
    """A message of protobuf in one line."""
    return " ".join(str(message).split())[:400]


class Trial:
    """One run of a case."""

    def __init__(self) -> None:
        self.transcript = TrialTranscript()
        self.news = asyncio.Event()

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Add what was said to a failure."""
        try:
            yield
        except Exception as error:
            error.add_note("\n".join(self.transcript.lines))
            raise

    def check(self, is_kept: bool, rule: str) -> None:
        """Check a rule.

        Raises:
            Failed: it is not kept.
        """
        if not is_kept:
            raise Failed(f"not kept: {rule}")

    async def until(self, condition: Callable[[], bool], what: str, within_s: float = 30.0) -> None:
        """Wait for something that has to come.

        Raises:
            Failed: it has not come.
        """
        ends_s = now_s() + within_s
        while not condition():
            left_s = ends_s - now_s()
            if left_s <= 0:
                self.check(False, f"{what} (within {within_s:.1f} s)")
            self.check(True, what)  # A subject that has ended will not do it.
            await self._some_news(left_s)

    async def never(self, condition: Callable[[], bool], what: str, for_s: float) -> None:
        """Wait, and see that something does not come.

        Raises:
            Failed: it has come.
        """
        ends_s = now_s() + for_s
        while (left_s := ends_s - now_s()) > 0:
            self.check(not condition(), f"{what}: it has")
            await self._some_news(left_s)

    async def _some_news(self, within_s: float) -> None:
        self.news.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(within_s, 0.1)):
                await self.news.wait()

    def not_before(self, happened_s: float, from_s: float, length_s: float, what: str) -> None:
        """Check that something did not happen until `length_s` after `from_s`."""
        after_s = happened_s - from_s
        self.check(
            after_s >= length_s - TOLERANCE_S,
            f"{what} not before {length_s:.2f} s: it was after {after_s:.2f} s",
        )
