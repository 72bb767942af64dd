"""Attempts at a transaction of a table that others write too."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType

MOST = 12
FIRST_S, LONGEST_S = 0.05, 2.0


def attempts(*kinds: type[Exception], failure: str) -> Iterator[AbstractContextManager[None]]:
    """Yield attempts, with growing pauses, that may raise one of `kinds`; the last one does.

    Leave the loop when an attempt succeeds, with `return` or `break`.
    """
    for number in range(1, MOST + 1):
        yield _Attempt(kinds, number, failure)


class _Attempt(AbstractContextManager[None]):
    def __init__(self, kinds: tuple[type[Exception], ...], number: int, failure: str) -> None:
        self._kinds, self._number, self._what = kinds, number, failure

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, self._kinds):
            return False
        if self._number == MOST:
            error.add_note(f"{self._what}: given up after {MOST} attempts; they go on when the "
                           "query is started again")  # fmt: skip
            return False
        pause_s = min(FIRST_S * 2**self._number, LONGEST_S)
        time.sleep(pause_s * random.uniform(0.5, 1))  # noqa: S311  # Not for secrets.
        return True
