"""Context of one step: what every rule gets beside its group and its command.

That is time, settings, sources of ids and numbers, and a place for its effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from coordinator.core.config import GroupConfig
from coordinator.core.pauses import Pause
from coordinator.core.payloads import PayloadReader
from coordinator.core.values.effects import Effects
from coordinator.core.values.ids import NO_TIME, CallId, IdSource

EPOCH_BITS = 20
"""Tokens for each second that passes between two owners of a shard: a million."""
CLOCKS_APART = 1 << 32
"""Tokens beyond those of the second in which a store is found to have lost commits: clocks of two
owners may differ by 68 minutes."""


class Numbers:
    """Tokens of grants, ids of hand-offs, and generations: numbers that are never used again.

    They outlive the groups of the shard.

    Tokens rise over restarts, restored copies of a store and new stores, because each owner begins
    above the second in which it took the shard over; below 2**53 until 2242, so that JSON and
    BIGINT hold them.
    """

    def __init__(self) -> None:
        self.last_token = 0
        self.durable_token = 0
        """Highest token that the log knows; 0: none was ever given out."""
        self.durable_handoff = 0
        """Highest id of a hand-off that the log knows: an id names one attempt for ever."""
        self.began_at_ms = NO_TIME
        """Time from which this owner serves the shard."""
        self.generation_floor = 0
        """Generations up to this one may have been used by groups of the shard, in records that the
        store has lost."""
        self.grants_from_ms = NO_TIME
        """Time from which partitions are granted: holders that the store has lost may act until
        then."""
        self._last_handoff = 0

    def begin(self, now_ms: int) -> None:
        """Begin to serve; `now_ms`: epoch milliseconds at which the log was fenced."""
        self.began_at_ms = now_ms
        floor = (now_ms // 1_000) << EPOCH_BITS
        self.last_token = max(self.last_token, floor)
        self._last_handoff = max(self._last_handoff, floor)

    def above_lost(self, raised: int, now_ms: int) -> int:
        """A token above all that may have been given out in commits that the store has lost.

        Args:
            raised: number that no other promotion of a standby has drawn.
        """
        return max(self.last_token, (now_ms // 1_000) << EPOCH_BITS) + CLOCKS_APART + raised

    def written(self, token: int) -> None:
        """Note a token that is in the log."""
        self.durable_token = max(self.durable_token, token)
        self.seen(token)

    def opened(self, handoff_id: int) -> None:
        """Note a hand-off that is in the log."""
        self.durable_handoff = max(self.durable_handoff, handoff_id)
        self._last_handoff = max(self._last_handoff, handoff_id)

    def seen(self, token: int) -> None:
        """Note a token that a member knows."""
        self.last_token = max(self.last_token, token)

    def next_token(self) -> int:
        return self.next_tokens(1)

    def next_tokens(self, count: int) -> int:
        """Take `count` consecutive tokens; returns the first."""
        first = self.last_token + 1
        self.last_token += count
        return first

    def next_handoff(self) -> int:
        self._last_handoff += 1
        return self._last_handoff


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
