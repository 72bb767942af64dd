"""Keeper of the order of a log's files in a group, for `FileLog`: see `sources/recorded.py`.

The pages of the record are the metadata of committed offsets of a pseudo-topic, `__files.` and
the topic's name. The offset of a page counts the entries up to its end. Only the last page and new
ones are written, compared with the count before (compare-and-set): of readers that find files at
the same moment one is first, and the others read what it has recorded. A coordinator of any version
can keep the record, which is durable, moves and is deleted with the group.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import Any, TypeVar

from coordinator.assignors import TopicPartition
from coordinator.client.transport.surroundings import SURROUNDINGS
from coordinator.commit_metadata import TOO_LARGE
from coordinator.dial import Credentials
from coordinator.operator.admin import FILES_TOPIC, GroupAdmin
from coordinator.operator.asking import RETRIABLE_REFUSALS, asked
from coordinator.sources.base import Source
from coordinator.sources.files import FileLog
from coordinator.sources.recorded import (
    MAX_BYTES,
    Entry,
    FileRecord,
    RecordUnreadable,
    page_read,
    pages_of,
)

LOGGER = logging.getLogger(__name__)
_TOPIC_MAX = 249
PAGES_A_CALL = 64
MISMATCH = "OFFSET_MISMATCH"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A record, its last page's number (-1: it has none) and that page's entries."""

    record: FileRecord = field(default_factory=FileRecord)
    page: int = -1
    last: tuple[Entry, ...] = ()


class GroupFiles:
    """`FileOrder` of a group. It can be pickled; each process loads what it needs."""

    def __init__(
        self, bootstrap: Sequence[str], group_id: str, credentials: Credentials | None
    ) -> None:
        self._bootstrap = ",".join(bootstrap)
        self._group_id = group_id
        self._credentials = credentials
        self._loaded: dict[str, _Loaded] = {}
        self._is_off = False

    def __getstate__(self) -> dict[str, Any]:  # Any: attributes.
        return {**self.__dict__, "_loaded": {}}

    def known(self, topic: str, *, anew: bool = False) -> FileRecord | None:
        """See `FileOrder`.

        Raises:
            RecordUnreadable: the pages were overwritten, by resetting their offsets for example.
            CoordinatorError: see `asked`.
        """
        if self._is_off or SURROUNDINGS.get() is not None:
            return None
        if anew or topic not in self._loaded:
            known = self._loaded.get(topic, _Loaded())
            self._loaded[topic] = self._asked(lambda admin: self._load(admin, topic, known))
        return self._loaded[topic].record

    def switch_off(self) -> None:
        """Have files count in order of name, as on virtual time, which calls of threads would stop.

        Tests on virtual time are such surroundings by themselves.
        """
        self._is_off = True

    def append(
        self, topic: str, record: FileRecord, rule: str, entries: Sequence[Entry]
    ) -> FileRecord | None:
        """See `FileOrder`. Several calls, if there are many: each appends whole pages.

        Raises:
            ValueError: the record would be too long. CoordinatorError: see `asked`.
        """
        loaded = self._loaded[topic]
        extended = record.extended(rule, entries)
        if extended.size_bytes > MAX_BYTES:
            raise ValueError(
                f"the files of {topic} are too many for group {self._group_id}: "
                f"{extended.count:,} entries take {extended.size_bytes:,} bytes, and the limit is "
                f"{MAX_BYTES:,}: write fewer and larger files, or read on in a new group, from a "
                "directory that begins with today's"
            )
        pages = pages_of(rule, loaded.last, entries)
        first = max(loaded.page, 0)
        stored = {loaded.page: record.count}
        ends = list(accumulate((n for n, _ in pages), initial=record.count - len(loaded.last)))[1:]
        done = 0
        while done < len(pages):
            # The last page of the call before is compared too: a shorter entry may fit into it.
            some = range(max(done - 1, 0), min(done + PAGES_A_CALL, len(pages)))
            keys = {TopicPartition(_pseudo_topic(topic), first + i): i for i in some}
            commits = {key: ends[i] for key, i in keys.items()}
            texts = {key: pages[i][1] for key, i in keys.items()}
            expected = {key: stored.get(first + i, -1) for key, i in keys.items()}
            stored = {first + i: ends[i] for i in some}
            refusals = self._commit(commits, expected, texts)
            if TOO_LARGE in refusals.values():
                self._is_off = True
                LOGGER.warning(
                    "the coordinator does not take the order of the files of %s: they count in "
                    "order of name; raise offset_metadata_max_bytes to 4096",
                    topic,
                )
                return None
            if MISMATCH in refusals.values():
                return None
            if refusals:
                raise LookupError(f"the files of {topic} were not recorded: {refusals}")
            done += PAGES_A_CALL
        last_count = pages[-1][0]
        behind = [*loaded.last, *entries]
        last_page = first + len(pages) - 1
        self._loaded[topic] = _Loaded(extended, last_page, tuple(behind[-last_count:]))
        return extended

    # --- Inside ---

    def _commit(
        self,
        commits: Mapping[TopicPartition, int],
        expected: Mapping[TopicPartition, int],
        texts: Mapping[TopicPartition, str],
    ) -> dict[TopicPartition, str]:
        def ask(admin: GroupAdmin) -> dict[TopicPartition, str]:
            refusals = admin.commit(
                self._group_id, commits, expected=expected, metadata=texts, needs_metadata=True
            )
            if not RETRIABLE_REFUSALS.isdisjoint(refusals.values()):
                raise LookupError(f"the files were not recorded: {refusals}")
            return refusals

        return self._asked(ask)

    def _load(self, admin: GroupAdmin, topic: str, known: _Loaded) -> _Loaded:
        """The record as it is now: the last page that is known, and those behind it.

        All pages, if that one is not there any more: the group was deleted, for example.
        """
        name = _pseudo_topic(topic)
        record, page, last = known.record, known.page, known.last
        first = max(page, 0)
        while True:
            keys = [TopicPartition(name, first + i) for i in range(PAGES_A_CALL)]
            found = admin.offsets_with_metadata(self._group_id, keys)
            commits = (found[key] for key in keys)
            stored = list(takewhile(lambda commit: commit.offset >= 0, commits))
            rule, new = record.rule, list[Entry]()
            for number, commit in enumerate(stored, first):
                rule, entries = page_read(commit.metadata)
                known_of_it = last if number == page else ()
                if tuple(entries[: len(known_of_it)]) != known_of_it:
                    return self._load(admin, topic, _Loaded())
                new += entries[len(known_of_it) :]
                if record.count + len(new) != commit.offset:
                    raise RecordUnreadable(
                        f"the record of the files of {topic} in group {self._group_id} has "
                        f"{record.count + len(new)} entries and should have {commit.offset}"
                    )
                page, last = number, tuple(entries)
            if not stored and first == page:
                return self._load(admin, topic, _Loaded())
            record = record.extended(rule, new) if new else record
            if len(stored) < PAGES_A_CALL:
                return _Loaded(record, page, last)
            first += PAGES_A_CALL

    def _asked(self, ask: Callable[[GroupAdmin], T]) -> T:
        return asked(self._bootstrap, self._group_id, self._credentials, ask)


def in_group(
    source: Source,
    bootstrap: str | Sequence[str],
    group_id: str,
    credentials: Credentials | None = None,
) -> Source:
    """The source with its files in the order that the group has recorded; others as they are."""
    addresses = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
    return ordered_by(source, GroupFiles(addresses, group_id, credentials))


def ordered_by(source: Source, files: GroupFiles) -> Source:
    """The source with its files in the order of a record; others as they are, also if ordered."""
    if isinstance(source, FileLog) and source.order is None:
        return source.ordered_by(files)
    return source


def _pseudo_topic(topic: str) -> str:
    name = FILES_TOPIC + topic
    if len(name) <= _TOPIC_MAX:
        return name
    return FILES_TOPIC + hashlib.blake2b(topic.encode(), digest_size=16).hexdigest()
