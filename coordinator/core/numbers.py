"""Numbers of a shard that are never used again: tokens of grants, ids of hand-offs, generations."""

from __future__ import annotations

from coordinator.core.values.ids import NO_TIME

EPOCH_BITS = 20
"""Tokens for each second that passes between two owners of a shard: a million."""
CLOCKS_APART = 1 << 32
"""Tokens beyond those of the second in which a store is found to have lost commits: clocks of two
owners may differ by 68 minutes."""


class Numbers:
    """Counters of one shard. They outlive its groups.

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
