"""Pauses of the node itself, which do not count towards session time-outs.

While the process is stopped or overloaded, heartbeats wait in its own queues. Sessions are extended
by the length of such a pause. `runtime/local_pauses.py` detects pauses and bounds them; on virtual
time there are none.

Source: Cassandra's failure detector, which marks nobody down after a local pause; Lifeguard
(Dadgar et al. 2018), whose members suspect themselves before others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pause:
    """Interval of a pause, epoch milliseconds. The end of a current pause may be in the future."""

    from_ms: int
    to_ms: int


def paused_since(pauses: Sequence[Pause], since_ms: int) -> int:
    """Return the total length of the pauses after `since_ms`. Pauses do not overlap."""
    return sum(max(0, pause.to_ms - max(pause.from_ms, since_ms)) for pause in pauses)
