"""Times in which the node did not hear its members, and which do not count as their silence.

A process that stands still, or has more calls waiting than it can answer, hears nobody. What its
members sent meanwhile waits in its own queues, so a session does not run out in that time: its
clock stands still. `runtime/local_pauses.py` finds these times and bounds them; on virtual time
there are none.

Source: Cassandra's failure detector, which marks nobody down after a local pause; Lifeguard
(Dadgar et al. 2018), whose members suspect themselves before others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pause:
    """From when to when, epoch milliseconds. One that goes on may end in the future."""

    from_ms: int
    to_ms: int


def paused_since(pauses: Sequence[Pause], since_ms: int) -> int:
    """Milliseconds of pauses after a moment. Pauses do not overlap."""
    return sum(max(0, pause.to_ms - max(pause.from_ms, since_ms)) for pause in pauses)
