"""Context of one step: what every rule gets beside its group and its command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from coordinator.core.config import GroupConfig
from coordinator.core.numbers import Numbers
from coordinator.core.pauses import Pause
from coordinator.core.payloads import PayloadReader
from coordinator.core.values.effects import Effects
from coordinator.core.values.ids import CallId, IdSource


@dataclass(slots=True)
class ShardContext:
    """Settings, sources of ids and numbers, and open streams of one shard.

    pauses: intervals in which the node did not process heartbeats, from the last `Tick`.
    streams: group and member of each open stream of a session member.
    """

    config: GroupConfig
    ids: IdSource
    payloads: PayloadReader
    numbers: Numbers = field(default_factory=Numbers)
    pauses: Sequence[Pause] = ()
    streams: dict[CallId, tuple[str, str]] = field(default_factory=dict)


@dataclass(slots=True)
class Step:
    """Third argument of a rule, `rule(group, command, step)`. Pure decisions get less.

    now_ms: the shard's clock; epoch milliseconds that never go back.
    out: takes replies, writes and timers.
    """

    now_ms: int
    out: Effects
    context: ShardContext

    @property
    def config(self) -> GroupConfig:
        return self.context.config

    @property
    def ids(self) -> IdSource:
        return self.context.ids

    @property
    def payloads(self) -> PayloadReader:
        return self.context.payloads

    @property
    def numbers(self) -> Numbers:
        return self.context.numbers

    @property
    def pauses(self) -> Sequence[Pause]:
        return self.context.pauses

    @property
    def streams(self) -> dict[CallId, tuple[str, str]]:
        return self.context.streams
