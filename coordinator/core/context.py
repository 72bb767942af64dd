"""Values that the handlers of a shard share, beside groups, commands and the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from coordinator.core.config import GroupConfig
from coordinator.core.ids import CallId, IdSource
from coordinator.core.numbers import Numbers
from coordinator.core.pauses import Pause


@dataclass(slots=True)
class ShardContext:
    """Settings, sources of ids and numbers, and open streams of one shard.

    pauses: intervals in which members were not heard, from the last `Tick`.
    streams: group and member of each open stream of a session member.
    """

    config: GroupConfig
    ids: IdSource
    numbers: Numbers = field(default_factory=Numbers)
    pauses: Sequence[Pause] = ()
    streams: dict[CallId, tuple[str, str]] = field(default_factory=dict)
