"""The leader's side of replication: fetches of followers, the in-sync set, the high watermark.

`followers` holds the state; this file calls it at the right moments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from coordinator.core.values.errors import ErrorCode, Refused
from coordinator.shard.followers import (
    FetchedEntries,
    FetchEntries,
    Followers,
    FollowersChanged,
    Tail,
    TailEntry,
)
from coordinator.shard.inputs import Appended, ShardEffects
from coordinator.shard.recurring import Recurring
from coordinator.shard.waits import Wait, Waits
from coordinator.shard.writes import SHARD_KEY, WriteQueue
from timer.purgatory import Purgatory
from timer.timer import Timer


class DelayedFetch(Wait):
    """A parked fetch of a follower: waits for `min_bytes` or the end of its time.

    Args:
        answered: queue of fetches to be answered in this step.
    Source: Kafka `DelayedFetch`.
    """

    __slots__ = ("_answered", "_tail", "fetch")

    def __init__(
        self, fetch: FetchEntries, tail: Tail, answered: deque[FetchEntries], waits: Waits
    ) -> None:
        super().__init__(waits)
        self.fetch = fetch
        self._tail = tail
        self._answered = answered

    def try_complete(self) -> bool:
        fetch = self.fetch
        return self._tail.need_not_wait(fetch.offset, fetch.min_bytes) and self.force_complete()

    def on_complete(self) -> None:
        self._answered.append(self.fetch)


class Replication:
    """Parked fetches of followers, and updates of the in-sync set.

    Args:
        now_ms: the time of the step.
        waits: counts how long fetches wait.
    """

    def __init__(
        self,
        timer: Timer,
        followers: Followers,
        writes: WriteQueue,
        *,
        now_ms: Callable[[], int],
        waits: Waits,
    ) -> None:
        self.fetches: Purgatory[str] = Purgatory(timer)
        self._followers = followers
        self._writes = writes
        self._now_ms = now_ms
        self._waits = waits
        self._fetched: deque[FetchEntries] = deque()
        self._lag_check = Recurring(
            timer, max(1, followers.policy.lag_time_max_ms // 2), self.update_in_sync
        )
        self._in_sync_changed = False

    def appended(self, event: Appended) -> None:
        """Handle the acknowledgement of an entry."""
        base_offset = self._writes.end_offset
        self._writes.appended(event.sequence)
        if event.encoded:
            self._followers.tail.add(TailEntry(event.sequence, base_offset, event.encoded))
        self._advance()
        self.fetches.check_and_complete(SHARD_KEY)

    def fetch(self, fetch: FetchEntries) -> None:
        """Answer a follower in this step, or park its fetch."""
        now_ms, followers = self._now_ms(), self._followers
        followers.fetched(fetch.follower, fetch.offset, self._writes.end_offset, now_ms)
        self.update_in_sync()
        if not self._lag_check.is_pending:
            self._lag_check.arm(now_ms)
        if not followers.tail.has(fetch.offset):
            self._fetched.append(fetch)
            return
        operation = DelayedFetch(fetch, followers.tail, self._fetched, self._waits)
        deadline_ms = now_ms + fetch.max_wait_ms
        self.fetches.try_complete_else_watch(operation, (SHARD_KEY,), deadline_ms)

    def expect(self, event: FollowersChanged) -> None:
        """Handle a change of the nodes that may follow."""
        self._followers.expect(event.nodes)
        self.update_in_sync()

    def update_in_sync(self) -> None:
        """Update the in-sync set, and then the high watermark."""
        if self._followers.update_in_sync(self._writes.high_watermark, self._now_ms()):
            self._in_sync_changed = True
        self._advance()

    def finish(self, out: ShardEffects) -> None:
        """Add the answers to followers and a changed in-sync set to the effects of the step."""
        while self._fetched:
            fetch = self._fetched.popleft()
            out.fetched.append((fetch.call_id, self._found(fetch.offset)))
        if self._lag_check.has_run:
            self._lag_check.arm(self._now_ms())
        if self._in_sync_changed:
            self._in_sync_changed = False
            out.in_sync = self._followers.in_sync

    def refuse(self, error: ErrorCode, out: ShardEffects) -> None:
        """Refuse the fetches that are parked."""
        for operation in self.fetches.cancel_for_key(SHARD_KEY):
            assert isinstance(operation, DelayedFetch)
            refused = operation.fetch.refusal(Refused(error))
            out.fetched.append((operation.fetch.call_id, refused))

    def _found(self, offset: int) -> FetchedEntries:
        tail, end_offset = self._followers.tail, self._writes.end_offset
        if tail.has(offset):
            return FetchedEntries(entries=tail.entries_from(offset), end_offset=end_offset)
        return FetchedEntries(end_offset=end_offset, is_gone=True)

    def _advance(self) -> None:
        self._writes.advance(self._followers.high_watermark(self._writes.end_offset))
