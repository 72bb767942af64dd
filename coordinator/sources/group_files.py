"""Record of a log's files in a group: what is known of it, how more files are appended and folded.

`recorded.py` says what a record is, and `DocumentStore` where its pages are kept:

    files/LENGTH/TOPIC/head      id, unit and rule, as JSON
    files/LENGTH/TOPIC/000012    a page; a folded one stands for those behind it too
    files/LENGTH/TOPIC/schema    what Spark has made of the files, and of how many

Only the last page and new ones are written, compared with the version before (compare-and-set): of
readers that find files at the same moment one is first, and the others read what it has recorded.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from coordinator.sources.recorded import (
    FileRecord,
    Folded,
    RecordedEntry,
    RecordUnreadable,
    page_of,
    page_read,
)

LOGGER = logging.getLogger(__name__)
VERSION = 1
SHORT = 256
"""Entries of the last page up to which it is written again for more."""
LONG = 4_096
"""The most entries of a page, some 60 kB; and those that are folded into one page."""
MOST_AT_ONCE = 16
"""Documents that are written at once."""
PAGES_AT_ONCE = 8
"""Pages of entries that are written at once, some 500 kB: stores take a MiB."""
RECENT = 8_192
"""Entries that are not folded, also if all files are read: offsets may be reset to theirs."""
TRIES = 3
MOST_UNREAD = 1_000_000
"""Files of a record that are not folded."""


class StoredDocument(Protocol):
    """A document of a group; see `operator.admin.Document`."""

    @property
    def name(self) -> str: ...
    @property
    def content(self) -> bytes: ...
    @property
    def version(self) -> int: ...


class DocumentStore(Protocol):
    """Documents and offsets of a group. It can be pickled.

    The methods may raise what the coordinator's client raises.
    """

    group_id: str

    @property
    def can_be_asked(self) -> bool:
        """False where nobody can be asked: on virtual time, which calls of threads would stop."""
        ...

    def documents(self, prefix: str, after_version: int) -> tuple[Collection[StoredDocument], int]:
        """Documents that were written after a version, and the number of all with the prefix."""
        ...

    def put(self, contents: Mapping[str, bytes], expected: Mapping[str, int]) -> Mapping[str, int]:
        """Write all, or none if a version is not the expected one (0: none); at most
        `MOST_AT_ONCE`. Without content it is deleted. Returns the new versions, or nothing."""
        ...

    def committed(self, topic: str) -> Mapping[int, int]:
        """Committed offsets of a topic, by partition."""
        ...


@dataclass(frozen=True, slots=True)
class _Page:
    version: int
    entries: Sequence[RecordedEntry]


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A record, and the documents that it stands in.

    newest: version up to which they were read. documents: their number.
    pages: those that are not folded, by number. folds: versions of the others.
    schema: its document's version and content.
    """

    record: FileRecord = field(default_factory=FileRecord)
    newest: int = 0
    documents: int = 0
    pages: Mapping[int, _Page] = field(default_factory=dict)
    folds: Mapping[int, int] = field(default_factory=dict)
    schema: tuple[int, bytes] = (0, b"")


class GroupFiles:
    """`FileOrder` of a group. It can be pickled; each process loads what it needs.

    Any thread may ask. States of a record share the keys of its files, so only one is made at a
    time.
    """

    def __init__(self, store: DocumentStore, *, is_off: bool = False) -> None:
        self._store = store
        self._loaded: dict[str, _Loaded] = {}
        self._is_off = is_off
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:  # Any: of a function and its arguments.
        return partial(GroupFiles, is_off=self._is_off), (self._store,)

    def known(self, topic: str, *, anew: bool = False) -> FileRecord | None:
        """See `FileOrder`.

        Raises:
            RecordUnreadable: the documents were overwritten, or a later version made them.
        """
        if self._is_off or not self._store.can_be_asked:
            return None
        with self._lock:
            if anew or topic not in self._loaded:
                self._loaded[topic] = self._load(topic)
            return self._loaded[topic].record

    def switch_off(self) -> None:
        """Have files count in order of name, as where nobody can be asked."""
        self._is_off = True

    def append(
        self, topic: str, unit: str, rule: str, entries: Sequence[RecordedEntry]
    ) -> FileRecord | None:
        """See `FileOrder`. Several calls, if there are many: each appends whole pages.

        Raises:
            ValueError: too many files are unread.
        """
        with self._lock:
            return self._append(topic, unit, rule, entries)

    def schema(self, topic: str) -> str | None:
        """Cache of the files that are known to be recorded; None: nothing."""
        if self.known(topic) is None:
            return None
        loaded = self._loaded[topic]
        count, _, text = loaded.schema[1].decode().partition("\n")
        return text if count == str(loaded.record.count) else None

    def keep_schema(self, topic: str, text: str) -> None:
        """Keep a text for others that read the files that are recorded now."""
        loaded = self._loaded.get(topic)
        if loaded is not None and loaded.record.id:
            name = _name(topic, "schema")
            content = f"{loaded.record.count}\n{text}".encode()
            self._store.put({name: content}, {name: loaded.schema[0]})

    # --- Inside: with the lock ---

    def _append(
        self, topic: str, unit: str, rule: str, entries: Sequence[RecordedEntry]
    ) -> FileRecord | None:
        loaded = self._loaded[topic]
        record, pages = loaded.record, dict(loaded.pages)
        if (unread := record.unfolded + len(entries)) > MOST_UNREAD:
            raise ValueError(
                f"{unread:,} files of {topic} are unread in group "
                f"{self._store.group_id}, and the limit is {MOST_UNREAD:,}: have each partition "
                "read and committed, or write fewer and larger files"
            )
        contents: dict[str, bytes] = {}
        if not record.id:
            record = FileRecord(uuid.uuid4().hex, unit, rule)
            head = {"v": VERSION, "id": record.id, "unit": unit, "rule": rule}
            contents[_name(topic, "head")] = json.dumps(head).encode()
        number, left = max(pages, default=-1), list(entries)
        is_short = number >= 0 and len(pages[number].entries) < SHORT
        last = list(pages[number].entries) if is_short else []
        number += not is_short
        while left:
            expected: dict[str, int] = {}
            here: dict[int, list[RecordedEntry]] = {}
            while left and len(here) < PAGES_AT_ONCE:
                capacity = LONG - len(last)
                here[number], left, last = last + left[:capacity], left[capacity:], []
                name = _name(topic, number)
                contents[name] = page_of(here[number])
                if number in pages:
                    expected[name] = pages[number].version
                number += 1
            versions = self._store.put(contents, expected)
            if not versions:
                return None
            pages |= {
                n: _Page(versions[_name(topic, n)], new_entries) for n, new_entries in here.items()
            }
            contents = {}
        # `newest` stays: what others have written meanwhile is to be read.
        documents = loaded.documents + len(pages) - len(loaded.pages) + (not loaded.record.id)
        self._loaded[topic] = replace(
            loaded, record=record.extended(entries), documents=documents, pages=pages
        )
        if not loaded.record.id:
            LOGGER.info(
                "offsets of %s in group %s count %s, with filePartitions=%s",
                topic,
                self._store.group_id,
                unit,
                rule,
            )
        self._fold(topic)
        return self._loaded[topic].record

    def _load(self, topic: str) -> _Loaded:
        """The record as it is now."""
        known = self._loaded.get(topic)
        if known is not None:
            documents, count = self._store.documents(_prefix(topic), known.newest)
            if not documents and count == known.documents:
                return known
            longer = _continued(topic, known, documents, count)
            if longer is not None:
                return longer
        for _ in range(TRIES):
            # Pages that others fold meanwhile may be missing.
            built = _built(topic, *self._store.documents(_prefix(topic), 0))
            if built is not None:
                return built
        raise RecordUnreadable(
            f"pages of the record of the files of {topic} in group {self._store.group_id} are "
            "missing"
        )

    def _fold(self, topic: str) -> None:
        """Fold the first pages of entries, if they are many and all of their files were read."""
        loaded = self._loaded[topic]
        if loaded.record.unfolded < RECENT + LONG:
            return
        run: list[int] = []
        for number in sorted(loaded.pages)[:-1]:
            run.append(number)
            if len(run) == MOST_AT_ONCE or sum(len(loaded.pages[n].entries) for n in run) >= LONG:
                break
        pages = [loaded.pages[n].entries for n in run]
        folded = loaded.record.fold(pages, self._store.committed(topic))
        if folded is None:
            return
        contents = dict.fromkeys((_name(topic, n) for n in run), b"")
        contents[_name(topic, run[0])] = page_of(folded)
        expected = {_name(topic, n): loaded.pages[n].version for n in run}
        # If another reader was first, it has done the same. What it wrote is read at the next look.
        if versions := self._store.put(contents, expected):
            left = {n: page for n, page in loaded.pages.items() if n not in run}
            self._loaded[topic] = replace(
                loaded,
                record=loaded.record.behind(folded),
                documents=loaded.documents - len(run) + 1,
                pages=left,
                folds={**loaded.folds, run[0]: versions[_name(topic, run[0])]},
            )


def _prefix(topic: str) -> str:
    return f"files/{len(topic)}/{topic}/"


def _name(topic: str, part: int | str) -> str:
    return _prefix(topic) + (part if isinstance(part, str) else f"{part:06}")


def _continued(
    topic: str, known: _Loaded, stored: Collection[StoredDocument], count: int
) -> _Loaded | None:
    """The known files, with documents that only continue them; None: all have to be read."""
    record, pages, folds, schema = known.record, dict(known.pages), dict(known.folds), known.schema
    documents = known.documents
    for document in sorted(stored, key=lambda document: document.name):
        part = document.name.removeprefix(_prefix(topic))
        if part == "head":
            if _begun(document).id != record.id:
                return None
            continue
        if part == "schema":
            documents += not schema[0]
            schema = (document.version, document.content)
            continue
        number, last = int(part), max(pages, default=-1)
        there = pages.get(number, _Page(0, ()))
        if document.version in (there.version, folds.get(number)):
            continue
        content = page_read(document.content)
        if isinstance(content, Folded):
            run = range(number, number + content.pages)
            if number != min(pages, default=-1) or not pages.keys() > set(run):
                return None
            record = record.behind(content)
            pages = {n: page for n, page in pages.items() if n not in run}
            folds[number] = document.version
            documents -= content.pages - 1
            continue
        before = there.entries
        if not 0 <= last <= number <= last + 1 or content[: len(before)] != list(before):
            return None
        documents += number > last
        pages[number] = _Page(document.version, content)
        record = record.extended(content[len(before) :])
    if documents != count:
        return None
    newest = max((document.version for document in stored), default=known.newest)
    return _Loaded(record, newest, count, pages, folds, schema)


def _built(topic: str, documents: Collection[StoredDocument], count: int) -> _Loaded | None:
    """A record from all its documents; None: some are missing.

    Raises:
        RecordUnreadable: they are no record.
    """
    by_part = {document.name.removeprefix(_prefix(topic)): document for document in documents}
    schema = by_part.pop("schema", None)
    head = by_part.pop("head", None)
    record = _begun(head) if head else FileRecord()
    pages, folds, number = dict[int, _Page](), dict[int, int](), 0
    for part, document in sorted(by_part.items()):
        if int(part) < number:
            continue  # It was read before it was folded.
        if int(part) > number:
            return None
        content = page_read(document.content)
        if isinstance(content, Folded):
            record = record.behind(content)
            folds[number] = document.version
            number += content.pages
        else:
            pages[number] = _Page(document.version, content)
            number += 1
    return _Loaded(
        record.extended(entry for page in pages.values() for entry in page.entries),
        max((document.version for document in documents), default=0),
        count,
        pages,
        folds,
        (0, b"") if schema is None else (schema.version, schema.content),
    )


def _begun(head: StoredDocument) -> FileRecord:
    try:
        content = json.loads(head.content)
        if content["v"] == VERSION:
            return FileRecord(content["id"], content["unit"], content["rule"])
    except (ValueError, KeyError, TypeError):
        pass
    raise RecordUnreadable(f"this is no head of a record of files: {head.content[:80]!r}")
