"""A `PageStore` in memory, which readers with their own caches share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from coordinator.sources.group_files import PageTooLarge, RecordPage


@dataclass
class MemoryPages:
    """Pages of one log's record. `before_write`: called once, in front of the next write."""

    group_id: str = "g"
    can_be_asked: bool = True
    text_max: int = 4_096
    stored: list[RecordPage] = field(default_factory=list)
    before_write: Callable[[], object] | None = None

    def read(self, topic: str, first: int) -> list[RecordPage]:
        return self.stored[first:]

    def write(
        self, topic: str, first: int, pages: Sequence[RecordPage], expected: Sequence[int]
    ) -> bool:
        if (other := self.before_write) is not None:
            self.before_write = None
            other()
        if any(len(page.text) > self.text_max for page in pages):
            raise PageTooLarge
        there = [page.end for page in self.stored[first : first + len(pages)]]
        if there + [-1] * (len(pages) - len(there)) != list(expected):
            return False
        self.stored[first : first + len(pages)] = pages
        return True
