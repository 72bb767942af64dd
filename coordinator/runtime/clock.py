"""The clock of a node, and where its member ids come from."""

from __future__ import annotations

import time
import uuid


class AnchoredClock:
    """Epoch milliseconds that never go back, whatever is done to the machine's clock.

    The epoch is read once, at the start; from there on monotonic time is added. So times
    in the log compare across restarts, and deadlines do not jump.
    """

    __slots__ = ("_offset_ms",)

    def __init__(self) -> None:
        self._offset_ms = (time.time_ns() - time.monotonic_ns()) // 1_000_000

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._offset_ms + time.monotonic_ns() // 1_000_000


class RandomIds:
    """Member ids as Kafka makes them: a prefix and a random UUID."""

    __slots__ = ()

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{uuid.uuid4()}"
