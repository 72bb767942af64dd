"""Budget of unread bytes of all connections together: received, but not yet a call.

One connection may hold a whole frame, so a hundred that never finish theirs would hold more than a
small node has. Beyond the budget, close the connection that has held much unread data the longest:
a client that is served finishes its frame at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Holder = TypeVar("Holder")
FREE_BYTES = 16_384
"""Bytes of a connection that are not counted: with more than usual requests have."""
FRAMES = 64
"""Largest frames that the budget has room for."""


class Buffers(Generic[Holder]):
    """Counts what connections keep.

    Args:
        most_bytes: the budget.
        on_beyond: called with each connection that has to end for it.
    """

    def __init__(self, most_bytes: int, on_beyond: Callable[[Holder], None]) -> None:
        self._most_bytes = most_bytes
        self._on_beyond = on_beyond
        self._held: dict[Holder, int] = {}  # Those that have held for longest come first.
        self.bytes = 0
        """Bytes that are counted."""

    def hold(self, holder: Holder, size: int) -> bool:
        """Count the bytes that a connection keeps now; True if it keeps more than are free."""
        held = self._held
        if size <= FREE_BYTES:
            self.bytes -= held.pop(holder, 0)
            return False
        self.bytes += size - held.get(holder, 0)
        held[holder] = size
        while self.bytes > self._most_bytes:
            longest = next(iter(held))
            self.bytes -= held.pop(longest)
            self._on_beyond(longest)
        return True
