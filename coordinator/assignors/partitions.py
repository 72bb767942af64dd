"""A partition of a topic, and how people read partitions: `invoices-9`, `invoices-0…5,7`."""

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic; partitions count from 0."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """The form of Kafka: `invoices-9`."""
        return f"{self.topic}-{self.partition}"


def spelled(partitions: Iterable[tuple[str, int]]) -> str:
    """Partitions in a few words, sorted: `invoices-0…5,7, refunds-2`."""
    return ", ".join(
        spelled_ranges(topic, _ranges([number for _, number in each]))
        for topic, each in groupby(sorted(partitions), key=lambda partition: partition[0])
    )


def spelled_by(pairs: Iterable[tuple[tuple[str, int], str]]) -> list[tuple[str, str]]:
    """Partitions of which the same is told, in a few words, and what: by the first of each."""
    groups: dict[str, list[tuple[str, int]]] = {}
    for partition, claimed in sorted(pairs):
        groups.setdefault(claimed, []).append(partition)
    return [(spelled(some), claim) for claim, some in groups.items()]


def spelled_ranges(topic: str, ranges: Iterable[tuple[int, int]]) -> str:
    """First and last numbers of ranges of a topic: `invoices-0…5,7`."""
    return f"{topic}-{','.join(str(a) if a == b else f'{a}…{b}' for a, b in ranges)}"


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Sorted numbers, successive ones as a range."""
    runs = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    number_lists = [[number for _, number in run] for _, run in runs]
    return [(run[0], run[-1]) for run in number_lists]
