"""Followers of a shard: their lag, the in-sync set, and the tail of the log that is kept for them.

A follower's fetch says how far its log reaches: up to the offset it asks from. A follower that
has reached the end within `lag_time_max_ms` is in sync. The store has every entry in any case; the
in-sync set decides which node can take over without a load, and, with acks=all, how far the high
watermark may advance.

Source: Kafka `Partition` (maybeExpandIsr, maybeShrinkIsr), `Replica.updateFetchState`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coordinator.core.values.errors import ErrorCode, Refused
from coordinator.core.values.ids import CallId

TAIL_BYTES = 4 * 1024 * 1024
"""Size of the tail kept for followers; a follower that is further behind reads the store."""
ANYBODY = -1
"""Node number of an observer, which never is in sync."""


@dataclass(frozen=True, slots=True)
class TailEntry:
    """An entry with its encoded records."""

    sequence: int
    base_offset: int
    records: tuple[bytes, ...]

    @property
    def next_offset(self) -> int:
        """Offset of the record after this entry."""
        return self.base_offset + len(self.records)

    @property
    def size_bytes(self) -> int:
        """Total size of its records."""
        return sum(map(len, self.records))


@dataclass(frozen=True, slots=True)
class FetchedEntries:
    """Answer to `FetchEntries`: entries from the requested offset on.

    `is_gone`: they are no longer in memory, read the store. `end_offset`: the leader's log end
    offset.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    entries: tuple[TailEntry, ...] = ()
    end_offset: int = 0
    is_gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchEntries:
    """A follower's request for entries from `offset` on, its own log end offset.

    Answered as soon as `min_bytes` are available, or after `max_wait_ms`.
    Source: Kafka `FetchRequest`, `DelayedFetch`.
    """

    call_id: CallId
    follower: int
    offset: int
    min_bytes: int
    max_wait_ms: int

    def refusal(self, refused: Refused) -> FetchedEntries:
        return FetchedEntries(refused.error, refused.message)


@dataclass(frozen=True, slots=True)
class FollowersChanged:
    """These nodes may follow the shard: those of its replicas that the cluster knows to be live.

    Other followers leave the in-sync set at once. Until the first such input, every node that
    fetches may follow.
    """

    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AckPolicy:
    """Condition under which a write is acknowledged.

    `all_in_sync`: wait until all nodes in sync have it, not only the store (acks=all).
    `min_in_sync` counts the leader.
    """

    node: int = 0
    all_in_sync: bool = False
    min_in_sync: int = 1
    lag_time_max_ms: int = 10_000


class Tail:
    """The end of the log, in memory.

    Args:
        max_bytes: of the records kept, beside the last entry; 0: none are kept.
    """

    def __init__(self, max_bytes: int = TAIL_BYTES) -> None:
        self._max_bytes = max_bytes
        self._entries: deque[TailEntry] = deque()
        self._bytes = 0
        self._end = 0

    def start_at(self, offset: int) -> None:
        """Begin at `offset`: earlier entries are in the store only."""
        self._end = offset

    def add(self, entry: TailEntry) -> None:
        """Append the next entry; drop the oldest ones beyond `max_bytes`."""
        self._end = entry.next_offset
        if not self._max_bytes:
            return
        self._entries.append(entry)
        self._bytes += entry.size_bytes
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            self._bytes -= self._entries.popleft().size_bytes

    def has(self, offset: int) -> bool:
        """True if all entries from `offset` to the end are in memory."""
        begin = self._entries[0].base_offset if self._entries else self._end
        return begin <= offset <= self._end

    def entries_from(self, offset: int) -> tuple[TailEntry, ...]:
        """Return the entries from `offset` on, oldest first."""
        entries = []
        for entry in reversed(self._entries):
            if entry.next_offset <= offset:
                break
            entries.append(entry)
        return tuple(reversed(entries))

    def bytes_from(self, offset: int) -> int:
        """Total size of the entries from `offset` on."""
        return sum(entry.size_bytes for entry in self.entries_from(offset))

    def need_not_wait(self, offset: int, min_bytes: int) -> bool:
        """True if `min_bytes` are available, or if the entries are in the store only."""
        return not self.has(offset) or self.bytes_from(offset) >= min_bytes


@dataclass(slots=True)
class _Follower:
    end_offset: int
    caught_up_ms: int
    asked_ms: int
    end_when_asked: int
    """Log end offset at the last fetch: a follower that reaches it by its next fetch keeps up."""


class Followers:
    """The followers of one shard, as its leader knows them.

    Args:
        tail_bytes: size of the tail kept for them; 0: no followers.
    """

    def __init__(self, policy: AckPolicy, tail_bytes: int = TAIL_BYTES) -> None:
        self.policy = policy
        self.tail = Tail(tail_bytes)
        self.in_sync: frozenset[int] = frozenset({policy.node})
        """Nodes in sync, the leader included."""
        self._followers: dict[int, _Follower] = {}
        self._expected: frozenset[int] | None = None  # None: any node.

    def expect(self, nodes: Iterable[int]) -> None:
        """Restrict the followers to these nodes; call `update_in_sync` afterwards."""
        self._expected = frozenset(nodes)
        for node in self._followers.keys() - self._expected:
            del self._followers[node]

    def fetched(self, follower: int, offset: int, end_offset: int, now_ms: int) -> None:
        """Note that a follower has everything before `offset`.

        Args:
            end_offset: the leader's log end offset.
        """
        if follower == ANYBODY or (self._expected is not None and follower not in self._expected):
            return
        known = self._followers.get(follower)
        if known is None:
            known = self._followers[follower] = _Follower(offset, -1, now_ms, end_offset)
        if offset >= end_offset:
            known.caught_up_ms = now_ms
        elif offset >= known.end_when_asked:
            known.caught_up_ms = max(known.caught_up_ms, known.asked_ms)
        known.end_offset, known.asked_ms, known.end_when_asked = offset, now_ms, end_offset

    def update_in_sync(self, high_watermark: int, now_ms: int) -> bool:
        """Update the in-sync set; True if it has changed.

        A node joins the set once it has everything up to the high watermark.
        """
        lag_ms = self.policy.lag_time_max_ms
        in_sync = {self.policy.node}
        for node, follower in self._followers.items():
            recent = follower.caught_up_ms >= 0 and now_ms - follower.caught_up_ms <= lag_ms
            if recent and (node in self.in_sync or follower.end_offset >= high_watermark):
                in_sync.add(node)
        changed = in_sync != self.in_sync
        self.in_sync = frozenset(in_sync)
        return changed

    def high_watermark(self, end_offset: int) -> int:
        """Highest offset that the in-sync set allows, given the log end offset."""
        if not self.policy.all_in_sync:
            return end_offset
        followers = self.in_sync - {self.policy.node}
        return min([end_offset, *(self._followers[node].end_offset for node in followers)])

    @property
    def are_enough(self) -> bool:
        """True if enough nodes are in sync for writes to be accepted."""
        return not self.policy.all_in_sync or len(self.in_sync) >= self.policy.min_in_sync

    def lags(self, end_offset: int) -> Sequence[tuple[int, int]]:
        """Return (node, records it lacks), by node."""
        return [
            (node, max(0, end_offset - follower.end_offset))
            for node, follower in sorted(self._followers.items())
        ]
