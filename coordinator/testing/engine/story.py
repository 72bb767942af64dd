"""Story of a world: its transcript, and counts of what ran.

The transcript is for people and for comparing two runs; the counts say that a run was worth its
time. Both are plain data: a run of the same seed makes the same ones, byte for byte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable


class Story:
    """The lines of a run.

    Args:
        now: seconds of the world, not of any process.
        is_told: keep the lines; otherwise only the counts are kept, which is faster.
    """

    def __init__(self, now: Callable[[], float], *, is_told: bool = False) -> None:
        self._now = now
        self.is_told = is_told
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()

    def tell(self, who: str, text: str) -> None:
        """Add a line: the time, the process, what it did."""
        if self.is_told:
            self.lines.append(f"{self._now():9.3f}  {who:<8} {text}")

    def count(self, counter: str, times: int = 1) -> None:
        """Note that something ran."""
        self.counts[counter] += times

    def fault(self, kind: str, who: str, fault_kind: str) -> None:
        """A fault was injected."""
        self.counts[f"fault: {kind}"] += 1
        self.tell(who, f"*** {fault_kind}")
