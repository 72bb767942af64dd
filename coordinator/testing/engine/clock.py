"""The clock of a simulated machine: its own rate, and a wall clock that may be wrong.

The loop counts true time in whole nanoseconds from 0. A machine counts on its own: its
monotonic clock goes a little fast or slow, its wall clock is that plus an offset, and the
offset may be stepped, as NTP does. All of it is integer arithmetic, so that a run gives the
same times on every platform and milliseconds are exact.
"""

from __future__ import annotations

from typing import Final

EPOCH_NS: Final = 1_700_000_000_000_000_000  # Wall clocks read this when the loop reads 0.
_MILLION: Final = 1_000_000


class MachineClock:
    """The two clocks of a machine, as functions of true time.

    Args:
        drift_ppm: parts per million by which the machine counts too fast; may be negative.
        started_ns: what its monotonic clock reads at true time 0.
        wall_offset_ns: how far its wall clock is ahead; may be changed at any time.
    Raises:
        ValueError: a clock with this drift would not move forward.
    """

    __slots__ = ("drift_ppm", "started_ns", "wall_offset_ns")

    def __init__(self, *, drift_ppm: int = 0, started_ns: int = 0, wall_offset_ns: int = 0) -> None:
        if drift_ppm <= -_MILLION:
            raise ValueError(f"a clock that drifts by {drift_ppm} ppm does not move forward")
        self.drift_ppm = drift_ppm
        self.started_ns = started_ns
        self.wall_offset_ns = wall_offset_ns

    def monotonic_ns(self, true_ns: int) -> int:
        """Time of the monotonic clock at `true_ns`."""
        if self.drift_ppm:
            true_ns += true_ns * self.drift_ppm // _MILLION
        return true_ns + self.started_ns

    def wall_ns(self, true_ns: int) -> int:
        """Time of the wall clock at `true_ns`, in nanoseconds since the epoch."""
        return EPOCH_NS + self.wall_offset_ns + self.monotonic_ns(true_ns) - self.started_ns

    def true_ns(self, monotonic_ns: int) -> int:
        """The first moment at which the monotonic clock reads `monotonic_ns` or more."""
        counted_ns = monotonic_ns - self.started_ns
        if self.drift_ppm:
            return -(-counted_ns * _MILLION // (_MILLION + self.drift_ppm))
        return counted_ns
