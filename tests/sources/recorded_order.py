"""A `FileOrder` in memory, of pages as a group keeps them, for readers with their own caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from coordinator.sources.recorded import Entry, FileRecord, page_read, pages_of


@dataclass
class Pages:
    """Pages of the group. `before_append`: called once, in front of the next append."""

    texts: list[str] = field(default_factory=list)
    before_append: object = None


class MemoryOrder:
    """One process's view of the pages."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages
        self.record = FileRecord()
        self.loads = 0

    def known(self, topic: str, *, anew: bool = False) -> FileRecord:
        if anew or not self.loads:
            self.loads += 1
            self.record = FileRecord()
            for text in self.pages.texts:
                self.record = self.record.extended(*page_read(text))
        return self.record

    def append(
        self, topic: str, record: FileRecord, rule: str, entries: Sequence[Entry]
    ) -> FileRecord | None:
        if (first := self.pages.before_append) is not None:
            self.pages.before_append = None
            first()
        count = sum(len(page_read(text)[1]) for text in self.pages.texts)
        if count != record.count:
            return None
        last = page_read(self.pages.texts.pop())[1] if self.pages.texts else []
        self.pages.texts += [text for _, text in pages_of(rule, last, entries)]
        self.record = record.extended(rule, entries)
        return self.record
