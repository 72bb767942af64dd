"""The clock of a node, and its source of member ids."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable


class AnchoredClock:
    """Epoch milliseconds that never go back, even when the machine's clock is set.

    The epoch is read once, at the start; from there on monotonic time is added. So times
    in the log compare across restarts, and deadlines do not jump.

    Args:
        wall_ns: the machine's wall clock, in nanoseconds since the epoch.
        monotonic_ns: its monotonic clock, in nanoseconds.
    """

    __slots__ = ("_monotonic_ns", "_offset_ms")

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._offset_ms = (wall_ns() - monotonic_ns()) // 1_000_000

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._offset_ms + self._monotonic_ns() // 1_000_000


class RandomIds:
    """Member ids as Kafka makes them: a prefix and a random UUID."""

    __slots__ = ()

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{uuid.uuid4()}"

    def new_session_id(self) -> str:
        return secrets.token_hex(16)
