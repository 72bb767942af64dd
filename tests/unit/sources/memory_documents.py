"""A `DocumentStore` in memory, which readers with their own caches share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coordinator.operator.admin import Document


@dataclass
class MemoryDocuments:
    """Documents of one group. `before_write`: called once, in front of the next write.

    read: committed offsets, by partition.
    """

    group_id: str = "g"
    can_be_asked: bool = True
    stored: dict[str, Document] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)
    before_write: Callable[[], object] | None = None
    version: int = 0
    puts: int = 0

    def documents(self, prefix: str, after_version: int) -> tuple[list[Document], int]:
        found = [item for name, item in self.stored.items() if name.startswith(prefix)]
        newer = sorted((d for d in found if d.version > after_version), key=lambda d: d.version)
        return newer, len(found)

    def put(self, contents: Mapping[str, bytes], expected: Mapping[str, int]) -> dict[str, int]:
        assert len(contents) <= 16
        if (other := self.before_write) is not None:
            self.before_write = None
            other()
        self.puts += 1
        for name in contents:
            there = self.stored.get(name)
            if (0 if there is None else there.version) != expected.get(name, 0):
                return {}
        versions = {}
        for name, content in contents.items():
            self.version += 1
            versions[name] = self.version
            self.stored.pop(name, None)
            if content:
                self.stored[name] = Document(name, content, self.version)
        return versions

    def committed(self, topic: str) -> dict[int, int]:
        return dict(self.read)
