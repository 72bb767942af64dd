"""Holders of partitions, in columns, and the hand-offs that are open.

A group may have 250,000 partitions, of which few change hands: those are objects, the others two
columns of their topic. Only `SessionGroup.apply` changes holders, tokens and phases. The soft part
of a hand-off (what its members have said since) is the rules' to change.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from coordinator.core.values.ids import NO_TIME, NO_TOKEN, TopicPartition
from coordinator.core.values.plan_journal import HandoffLine, WorkStop
from coordinator.core.values.policy import Mode
from coordinator.core.values.records import Grant, Phase

GRANT_BYTES = 48
"""Most that a grant takes in a record without its names and ranges: token, tags and lengths."""


@dataclass(slots=True)
class Handoff:
    """A hand-off that is open. `source` is empty in COPY: its token has ended.

    line: what the journal knows of it. The fields from `deadline_ms` on are soft.
    """

    handoff_id: int
    phase: Phase
    source: str
    successor: str
    length_ms: int
    position: int
    line: HandoffLine
    deadline_ms: int = NO_TIME
    is_overdue: bool = False
    is_ready: bool = False

    @property
    def mode(self) -> Mode:
        """Mode of the group when the hand-off was opened."""
        return Mode(self.line.mode) if self.line.mode else Mode.SIMPLE

    @property
    def is_prepared_for(self) -> bool:
        """True if its successor is ordered to make itself ready, and then to stay so."""
        return bool(self.successor) and (
            self.phase in (Phase.PREPARE, Phase.COPY) or self.mode is Mode.WARM
        )


@dataclass(frozen=True, slots=True)
class Reservation:
    """A partition that is reserved for the name of a member that has announced to return.

    `is_delayed`: its lease has ended instead, and a process that waits for the name is to have the
    partition when the policy's delay is over.
    """

    name: str
    is_delayed: bool = False


@dataclass(frozen=True, slots=True)
class IdleSpan:
    """A partition is idle since its last `holder`, a member of `name`, stopped."""

    holder: str
    name: str
    stop: WorkStop


_NO_IDLE_SPANS: dict[int, IdleSpan] = {}
"""Shared by all topics that have none: it saves 80 bytes a topic."""


@dataclass(slots=True)
class TopicHoldings:
    """Holdings of one topic.

    holders: member id of each partition; empty: nobody. tokens: of the grant; 0: none.
    idle_spans: partitions that nobody works on, until they are granted. It is soft.
    """

    topic: str
    holders: list[str] = field(default_factory=list)
    tokens: array[int] = field(default_factory=lambda: array("q"))
    open: dict[int, Handoff] = field(default_factory=dict)
    reserved: dict[int, Reservation] = field(default_factory=dict)
    idle_spans: dict[int, IdleSpan] = field(default_factory=lambda: _NO_IDLE_SPANS)

    def grow(self, count: int) -> None:
        """Extend the columns to at least `count` partitions."""
        more = count - len(self.holders)
        if more > 0:
            self.holders += [""] * more
            self.tokens.extend([NO_TOKEN] * more)

    def trim(self, count: int) -> int:
        """Drop unused rows from `count` on; returns how many are left."""
        size = len(self.holders)
        while size > count and not (
            self.holders[size - 1] or size - 1 in self.open or size - 1 in self.reserved
        ):
            size -= 1
        del self.holders[size:], self.tokens[size:]
        for partition in [p for p in self.idle_spans if p >= size]:
            del self.idle_spans[partition]
        return size

    def note_idle_span(self, partition: int, idle_span: IdleSpan) -> None:
        """Record that a partition is idle."""
        if self.idle_spans is _NO_IDLE_SPANS:
            self.idle_spans = {}
        self.idle_spans[partition] = idle_span

    def set(self, partition: int, member_id: str, token: int) -> None:
        """Set a partition's holder (empty: none), and end its hand-off."""
        self.grow(partition + 1)
        self.holders[partition] = member_id
        self.tokens[partition] = token
        self.open.pop(partition, None)
        self.reserved.pop(partition, None)

    def grant(
        self, ranges: Iterable[tuple[int, int]], member_id: str, first_token: int
    ) -> list[int]:
        """Give free partitions to a member under consecutive tokens; returns the partitions.

        Nothing is open about them, and there is room for them.
        """
        holders, tokens, token = self.holders, self.tokens, first_token
        partitions: list[int] = []
        for first, last in ranges:
            if first == last:
                holders[first], tokens[first] = member_id, token
                partitions.append(first)
                token += 1
                continue
            count = last - first + 1
            holders[first : last + 1] = [member_id] * count
            tokens[first : last + 1] = array("q", range(token, token + count))
            partitions += range(first, last + 1)
            token += count
        return partitions


def grants_of(
    member_id: str,
    topic_partitions: Iterable[TopicPartition],
    next_tokens: Callable[[int], int],
    source: str = "",
) -> tuple[Grant, ...]:
    """Grants of the partitions to a member, each under a new token. `source`: who holds them."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(topic_partitions):
        by_topic.setdefault(topic, []).append(partition)
    return tuple(
        Grant(member_id, topic, ranges_of(partitions), next_tokens(len(partitions)), source)
        for topic, partitions in by_topic.items()
    )


def ranges_of(partitions: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return ascending partitions as ranges, first and last, both included."""
    ranges: list[tuple[int, int]] = []
    first = last = -2
    for partition in partitions:
        if partition != last + 1:
            if first >= 0:
                ranges.append((first, last))
            first = partition
        last = partition
    if first >= 0:
        ranges.append((first, last))
    return tuple(ranges)


def size_of(ranges: Iterable[tuple[int, int]]) -> int:
    """Return the number of partitions in ranges."""
    return sum(last - first + 1 for first, last in ranges)


def cut(
    ranges: tuple[tuple[int, int], ...], most: int
) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """Return the first `most` partitions of ascending ranges, and those that are left."""
    for number, (first, last) in enumerate(ranges):
        if last - first + 1 > most:
            head = ((first, first + most - 1),) if most else ()
            return (*ranges[:number], *head), ((first + most, last), *ranges[number + 1 :])
        most -= last - first + 1
    return ranges, ()


def grant_bytes(member_id: str, topic: str, ranges: tuple[tuple[int, int], ...]) -> int:
    """Return the most that a grant takes in a record; partitions are below two million."""
    return GRANT_BYTES + len(member_id.encode()) + len(topic.encode()) + 6 * len(ranges)
