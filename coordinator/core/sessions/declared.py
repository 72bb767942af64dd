"""Partitions that the members of a group declare.

A topic has as many partitions as the member says that declares the most. Counts are kept by number
of declarations, so that a question costs nothing and a change only its own topics. Most members of
a group declare the same: they share one declaration, which takes 80 KiB for 500 topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from coordinator.core.values.plan_journal import PartlyDeclared

Topics = tuple[tuple[str, int], ...]
"""Names, with numbers of partitions."""


@dataclass(frozen=True, slots=True, eq=False)
class DeclaredTopics:
    """The topics that some members declare. `counts`: the same by name, since rules ask for each
    partition."""

    topics: Topics
    counts: Mapping[str, int]


NOTHING = DeclaredTopics((), {})
PARTLY_MAX = 5
"""Ranges that a plan lists, and members that it names for each."""


class Declarations:
    """The declarations of one group.

    counts: partitions of each declared topic. total: all of them. shrunk: topics that have fewer
    partitions than before, until their rows are given back.
    """

    __slots__ = ("_by_topic", "_members", "_shared", "counts", "shrunk", "total")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.total = 0
        self.shrunk: set[str] = set()
        self._shared: dict[Topics, DeclaredTopics] = {}
        self._members: Counter[Topics] = Counter()
        self._by_topic: dict[str, dict[int, int]] = {}  # Declarations with each number.

    def add(self, topics: Topics) -> DeclaredTopics:
        """Add a member's declaration; returns an equal one that is known already, to share it."""
        self._members[topics] += 1
        if topics in self._shared:
            return self._shared[topics]
        declaration = self._shared[topics] = DeclaredTopics(topics, dict(topics))
        for name, count in topics:
            numbers = self._by_topic.setdefault(name, {})
            numbers[count] = numbers.get(count, 0) + 1
            self._set(name, max(count, self.counts.get(name, 0)))
        return declaration

    def remove(self, topics: Topics) -> None:
        """Remove a member's declaration."""
        self._members[topics] -= 1
        if self._members[topics]:
            return
        del self._members[topics], self._shared[topics]
        for name, count in topics:
            numbers = self._by_topic[name]
            numbers[count] -= 1
            if numbers[count]:
                continue
            del numbers[count]
            if numbers:
                self._set(name, max(numbers))
            else:
                del self._by_topic[name]
                self._set(name, 0)

    def total_with(self, topics: Topics) -> int:
        """Number of partitions of the group if these topics were declared too."""
        return self.total + sum(max(0, count - self.counts.get(name, 0)) for name, count in topics)

    def partly(self, members: Iterable[tuple[str, DeclaredTopics]]) -> tuple[PartlyDeclared, ...]:
        """The first few ranges of partitions that only some of these members declare.

        Args:
            members: id and declaration of each; asked only if they do not declare the same.
        """
        if len(self._shared) < 2:
            return ()
        everybody = list(members)
        return tuple(islice(self._ranges(everybody), PARTLY_MAX))

    def _ranges(self, members: Sequence[tuple[str, DeclaredTopics]]) -> Iterator[PartlyDeclared]:
        for topic, numbers in self._by_topic.items():
            missing = sum(numbers.values()) < len(self._shared)
            counts = sorted(numbers.keys() | ({0} if missing else set()))
            for low, high in pairwise(counts):
                having = [
                    name
                    for name, some_counts in members
                    if some_counts.counts.get(topic, 0) >= high
                ]
                if having:
                    named = tuple(having[:PARTLY_MAX])
                    yield PartlyDeclared(topic, low, high - 1, named, len(having))

    def _set(self, name: str, count: int) -> None:
        before = self.counts.pop(name, 0)
        self.total += count - before
        if name in self._by_topic:
            self.counts[name] = count
        if count < before:
            self.shrunk.add(name)
