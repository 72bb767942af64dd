"""Who follows a shard, how far behind they are, and what they have not got yet.

A follower's fetch says how far its log reaches: up to the offset it asks from. Whoever has
been at the end within the lag that is allowed is in sync. Nothing is safer for it: the store
has every entry. It decides who takes over without a load, and, with acks=all, how far the
high watermark may go.

Source: Kafka `Partition` (maybeExpandIsr, maybeShrinkIsr), `Replica.updateFetchState`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coordinator.core.errors import ErrorCode, Refused
from coordinator.core.ids import CallId

TAIL_BYTES = 4 * 1024 * 1024
"""So much of a log's end is kept for followers; who lacks more reads the store."""
ANYBODY = -1
"""The follower's number of one who only looks on."""


@dataclass(frozen=True, slots=True)
class TailEntry:
    """An entry as the store has it. What is in its records is not looked into."""

    sequence: int
    base_offset: int
    records: tuple[bytes, ...]

    @property
    def next_offset(self) -> int:
        """Of the record after it."""
        return self.base_offset + len(self.records)

    @property
    def size_bytes(self) -> int:
        """Of its records."""
        return sum(map(len, self.records))


@dataclass(frozen=True, slots=True)
class FetchedEntries:
    """Entries from the offset on that was asked for.

    `is_gone`: they are not in memory any more, read the store. `end_offset` is where the
    leader's log ends.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    entries: tuple[TailEntry, ...] = ()
    end_offset: int = 0
    is_gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchEntries:
    """A follower asks for what comes after its own end, which is `offset`.

    Answered as soon as `min_bytes` are there, or after `max_wait_ms`.
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

    Nobody waits for another one any longer, however lately it asked. Until this is first told,
    whoever asks may follow.
    """

    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AckPolicy:
    """When a write counts as done.

    `all_in_sync`: when those in sync have it too, not only the store (acks=all). `min_in_sync`
    counts the leader.
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
        """Nothing that lies before is here."""
        self._end = offset

    def add(self, entry: TailEntry) -> None:
        """The entry that follows."""
        self._end = entry.next_offset
        if not self._max_bytes:
            return
        self._entries.append(entry)
        self._bytes += entry.size_bytes
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            self._bytes -= self._entries.popleft().size_bytes

    def has(self, offset: int) -> bool:
        """True if everything from there on is here, be it nothing."""
        begin = self._entries[0].base_offset if self._entries else self._end
        return begin <= offset <= self._end

    def entries_from(self, offset: int) -> tuple[TailEntry, ...]:
        """Oldest first."""
        found = []
        for entry in reversed(self._entries):
            if entry.next_offset <= offset:
                break
            found.append(entry)
        return tuple(reversed(found))

    def bytes_from(self, offset: int) -> int:
        """How much there is from an offset on."""
        return sum(entry.size_bytes for entry in self.entries_from(offset))

    def need_not_wait(self, offset: int, min_bytes: int) -> bool:
        """True if so many bytes are there, or if what follows the offset is in the store alone."""
        return not self.has(offset) or self.bytes_from(offset) >= min_bytes


@dataclass(slots=True)
class _Follower:
    end_offset: int
    caught_up_ms: int
    asked_ms: int
    end_when_asked: int
    """Where the leader's log ended then: to have come so far by the next time is to keep up."""


class Followers:
    """The followers of one shard, as its leader knows them.

    Args:
        tail_bytes: of the log's end that is kept for them; 0: there can be none.
    """

    def __init__(self, policy: AckPolicy, tail_bytes: int = TAIL_BYTES) -> None:
        self.policy = policy
        self.tail = Tail(tail_bytes)
        self.in_sync: frozenset[int] = frozenset({policy.node})
        """The leader among them."""
        self._followers: dict[int, _Follower] = {}
        self._expected: frozenset[int] | None = None  # None: anybody.

    def expect(self, nodes: Iterable[int]) -> None:
        """Have nobody but these nodes follow. Settle with `look` who is in sync then."""
        self._expected = frozenset(nodes)
        for node in self._followers.keys() - self._expected:
            del self._followers[node]

    def fetched(self, follower: int, offset: int, end_offset: int, now_ms: int) -> None:
        """A follower has everything before `offset`.

        Args:
            end_offset: where the leader's log ends now.
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

    def look(self, high_watermark: int, now_ms: int) -> bool:
        """Settle who is in sync; True if that has changed.

        Who is not yet comes in when it has all that was acknowledged.
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
        """How far writes count as done, given where the log ends."""
        if not self.policy.all_in_sync:
            return end_offset
        followers = self.in_sync - {self.policy.node}
        return min([end_offset, *(self._followers[node].end_offset for node in followers)])

    @property
    def are_enough(self) -> bool:
        """True if so many are in sync that writes are taken."""
        return not self.policy.all_in_sync or len(self.in_sync) >= self.policy.min_in_sync

    def lags(self, end_offset: int) -> Sequence[tuple[int, int]]:
        """Records that each follower lacks."""
        return [
            (node, max(0, end_offset - follower.end_offset))
            for node, follower in sorted(self._followers.items())
        ]
