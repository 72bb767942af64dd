"""Record of a log's files in a group: what is known of it, and how more files are appended.

`recorded.py` says what a record is, and `PageStore` where its pages are kept. Only the last page
and new ones are written, compared with the count before (compare-and-set): of readers that find
files at the same moment one is first, and the others read what it has recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from coordinator.sources.recorded import (
    MAX_BYTES,
    Entry,
    FileRecord,
    RecordUnreadable,
    page_read,
    pages_of,
)

LOGGER = logging.getLogger(__name__)
PAGES_A_CALL = 64


class PageTooLarge(Exception):
    """The store does not take pages of this size."""


class RecordPage(NamedTuple):
    """A page of a record. `end`: the number of entries of the record up to the end of the page."""

    end: int
    text: str


class PageStore(Protocol):
    """Keeper of the pages of a group's records. It can be pickled.

    `read` and `write` may raise what the coordinator's client raises.
    """

    group_id: str

    @property
    def can_be_asked(self) -> bool:
        """False where nobody can be asked: on virtual time, which calls of threads would stop."""
        ...

    def read(self, topic: str, first: int) -> list[RecordPage]:
        """The pages of a log's record from number `first` on."""
        ...

    def write(
        self, topic: str, first: int, pages: Sequence[RecordPage], expected: Sequence[int]
    ) -> bool:
        """Write pages from number `first` on, all or none; at most `PAGES_A_CALL`.

        Args:
            expected: the `end` of each page that is stored now; -1: there is none.
        Returns:
            False if another one is stored.
        Raises:
            PageTooLarge: it takes no such page.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A record, its last page's number (-1: it has none) and that page's entries."""

    record: FileRecord = field(default_factory=FileRecord)
    page: int = -1
    last: tuple[Entry, ...] = ()


class GroupFiles:
    """`FileOrder` of a group. It can be pickled; each process loads what it needs."""

    def __init__(self, store: PageStore) -> None:
        self._store = store
        self._loaded: dict[str, _Loaded] = {}
        self._is_off = False

    def __getstate__(self) -> dict[str, Any]:  # Any: attributes.
        return {**self.__dict__, "_loaded": {}}

    def known(self, topic: str, *, anew: bool = False) -> FileRecord | None:
        """See `FileOrder`.

        Raises:
            RecordUnreadable: the pages were overwritten, by resetting their offsets for example.
        """
        if self._is_off or not self._store.can_be_asked:
            return None
        if anew or topic not in self._loaded:
            self._loaded[topic] = self._load(topic, self._loaded.get(topic, _Loaded()))
        return self._loaded[topic].record

    def switch_off(self) -> None:
        """Have files count in order of name, as where nobody can be asked."""
        self._is_off = True

    def append(
        self, topic: str, record: FileRecord, rule: str, entries: Sequence[Entry]
    ) -> FileRecord | None:
        """See `FileOrder`. Several calls, if there are many: each appends whole pages.

        Raises:
            ValueError: the record would be too long.
        """
        loaded = self._loaded[topic]
        extended = record.extended(rule, entries)
        if extended.size_bytes > MAX_BYTES:
            raise ValueError(
                f"the files of {topic} are too many for group {self._store.group_id}: "
                f"{extended.count:,} entries take {extended.size_bytes:,} bytes, and the limit is "
                f"{MAX_BYTES:,}: write fewer and larger files, or read on in a new group, from a "
                "directory that begins with today's"
            )
        counted = pages_of(rule, loaded.last, entries)
        begin = record.count - len(loaded.last)
        ends = list(accumulate((n for n, _ in counted), initial=begin))[1:]
        pages = [RecordPage(end, text) for end, (_, text) in zip(ends, counted, strict=True)]
        first = max(loaded.page, 0)
        stored = {loaded.page: record.count}
        done = 0
        while done < len(pages):
            # The last page of the call before is compared too: a shorter entry may fit into it.
            some = range(max(done - 1, 0), min(done + PAGES_A_CALL, len(pages)))
            expected = [stored.get(first + i, -1) for i in some]
            written = [pages[i] for i in some]
            try:
                if not self._store.write(topic, first + some.start, written, expected):
                    return None
            except PageTooLarge:
                self._is_off = True
                LOGGER.warning(
                    "the coordinator does not take the order of the files of %s: they count in "
                    "order of name; raise offset_metadata_max_bytes to 4096",
                    topic,
                )
                return None
            stored = {first + i: pages[i].end for i in some}
            done += PAGES_A_CALL
        behind = [*loaded.last, *entries]
        last_page = first + len(pages) - 1
        self._loaded[topic] = _Loaded(extended, last_page, tuple(behind[-counted[-1][0] :]))
        return extended

    # --- Inside ---

    def _load(self, topic: str, known: _Loaded) -> _Loaded:
        """The record as it is now: the last page that is known, and those behind it.

        All pages, if that one is not there any more: the group was deleted, for example.
        """
        record, page, last = known.record, known.page, known.last
        first = max(page, 0)
        stored = self._store.read(topic, first)
        if not stored and first == page:
            return self._load(topic, _Loaded())
        rule, new = record.rule, list[Entry]()
        for number, (end, text) in enumerate(stored, first):
            rule, entries = page_read(text)
            known_of_it = last if number == page else ()
            if tuple(entries[: len(known_of_it)]) != known_of_it:
                return self._load(topic, _Loaded())
            new += entries[len(known_of_it) :]
            if record.count + len(new) != end:
                raise RecordUnreadable(
                    f"the record of the files of {topic} in group {self._store.group_id} has "
                    f"{record.count + len(new)} entries and should have {end}"
                )
            page, last = number, tuple(entries)
        return _Loaded(record.extended(rule, new) if new else record, page, last)
