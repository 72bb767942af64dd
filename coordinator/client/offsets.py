"""Offsets and commits, as members give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.assignors import TopicPartition
from coordinator.assignors.partitions import spelled
from coordinator.client.errors import CommitFailed


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """Committed offset of one partition; `offset` is the next one to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit to be made. `expected`: offsets that must be stored now; -1: none."""

    offsets: Offsets
    expected: Mapping[TopicPartition, int] = field(default_factory=dict)
    atomic: bool = False
    manifest: bytes = b""

    def check(self) -> None:
        """Check that no offset is negative.

        Raises:
            CommitFailed: one is negative.
        """
        negative = [p for p, offset in self.offsets.items() if offset_number(offset) < 0]
        if negative:
            raise CommitFailed(
                f"nothing was sent, for an offset is negative: {spelled(negative)}",
                "INVALID_ARGUMENT",
            )


def offset_number(offset: int | OffsetAndMetadata) -> int:
    """The offset without its metadata."""
    return offset if isinstance(offset, int) else offset.offset
