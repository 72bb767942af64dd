"""Parsers of what consumers send in their metadata and assignments, as functions that are injected.

The core itself does not know the formats of payloads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from coordinator.core.values.ids import TopicPartition

TopicReader = Callable[[bytes], frozenset[str] | None]
"""Reads the topics in a member's metadata; returns None if it cannot parse it."""

PartitionReader = Callable[[bytes], Iterable[TopicPartition] | None]
"""Reads partitions; returns None if it cannot parse them."""


@dataclass(frozen=True, slots=True)
class PayloadReader:
    """Parsers of consumers' payloads.

    `partitions` reads those of an assignment, `owned` those that a member's metadata claim.
    """

    topics: TopicReader
    partitions: PartitionReader
    owned: PartitionReader
