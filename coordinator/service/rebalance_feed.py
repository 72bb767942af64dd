"""Live feed of finished rebalances for watchers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence

from coordinator.core.values.events import (
    Event,
    HandoffJournaled,
    PlanJournaled,
    RebalanceJournaled,
)
from coordinator.core.values.plan_journal import PlanRecord
from coordinator.core.values.rebalance_journal import RebalanceRecord
from coordinator.service.refusals import Exhausted

BEHIND_MAX = 1_000
Journaled = RebalanceRecord | PlanRecord | HandoffJournaled
"""A rebalance; of a session group a plan, or a hand-off that has ended."""


class TooSlow(Exhausted):
    """A watcher has left `BEHIND_MAX` rebalances unread."""

    def __init__(self) -> None:
        reason = "rebalances come faster than you read them: list them, and watch again"
        super().__init__(reason, retry_after_s=0)


class RebalanceFeed:
    """Publishes each rebalance of this node to every watcher, all in one event loop."""

    def __init__(self) -> None:
        self._watchers: set[asyncio.Queue[Journaled | None]] = set()

    def __call__(self, events: Sequence[Event], now_ms: int) -> None:
        if not self._watchers:
            return
        for event in events:
            if isinstance(event, RebalanceJournaled | PlanJournaled | HandoffJournaled):
                announced = event if isinstance(event, HandoffJournaled) else event.record
                for queue in self._watchers:
                    # A watcher that is too far behind gets no more, and TooSlow when it reads.
                    if queue.qsize() <= BEHIND_MAX:
                        queue.put_nowait(announced)

    def close(self) -> None:
        """End every watch."""
        for queue in self._watchers:
            queue.put_nowait(None)

    async def watch(self, group_ids: Collection[str]) -> AsyncIterator[Journaled]:
        """Yield rebalances from now on, until the feed is closed.

        Args:
            group_ids: groups to watch; empty: all.
        Raises:
            TooSlow: the watcher has left `BEHIND_MAX` unread.
        """
        queue: asyncio.Queue[Journaled | None] = asyncio.Queue()
        self._watchers.add(queue)
        try:
            while (record := await queue.get()) is not None:
                if queue.qsize() >= BEHIND_MAX:
                    raise TooSlow
                if not group_ids or record.group_id in group_ids:
                    yield record
        finally:
            self._watchers.discard(queue)
