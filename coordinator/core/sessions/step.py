"""Context of one step of the session rules: time, effects, and what the shard shares."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.config import GroupConfig
from coordinator.core.context import ShardContext
from coordinator.core.effects import Effects
from coordinator.core.ids import CallId, IdSource
from coordinator.core.numbers import Numbers


@dataclass(slots=True)
class Step:
    """Arguments of a rule beside the group and its command. Pure decisions get less.

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
    def numbers(self) -> Numbers:
        return self.context.numbers

    @property
    def ids(self) -> IdSource:
        return self.context.ids

    @property
    def streams(self) -> dict[CallId, tuple[str, str]]:
        """Group and member of each open stream."""
        return self.context.streams
