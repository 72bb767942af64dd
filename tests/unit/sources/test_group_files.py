"""The record of a log's files: pages, folding, and many files over a long time."""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.sources import FileLog, LogChanged
from coordinator.sources.file_stores import StoreEntry as Looked
from coordinator.sources.file_systems import StorePath
from coordinator.sources.group_files import LONG, MOST_UNREAD, RECENT, GroupFiles
from coordinator.sources.layout import ListedFile
from coordinator.sources.listing import in_order
from coordinator.sources.recorded import (
    Base,
    FileRecord,
    Folded,
    RecordedEntry,
    RecordUnreadable,
    key_of,
    page_of,
    page_read,
)
from tests.unit.sources.memory_documents import MemoryDocuments

NUMBER = st.integers(0, 2**40)
KEY = st.integers(0, 2**64 - 1)
ENTRIES = st.builds(
    RecordedEntry, KEY, st.integers(0, 10**6), st.none() | NUMBER, st.integers(0, 2**32 - 1)
)
FOLDED = st.builds(
    Folded,
    st.integers(1, 16),
    st.dictionaries(st.integers(0, 10**4), st.builds(Base, NUMBER, NUMBER), max_size=9),
    st.lists(KEY, max_size=40),
)


def entries(first: int, upto: int, partitions: int = 3) -> list[RecordedEntry]:
    return [RecordedEntry(key_of(f"part-{n}"), n % partitions, 2, n) for n in range(first, upto)]


def reader(documents: MemoryDocuments) -> GroupFiles:
    return GroupFiles(documents)


def record_of(documents: MemoryDocuments) -> FileRecord:
    """The record as somebody reads it who has read nothing of it before."""
    return reader(documents).known("t")


def folded(record: FileRecord) -> int:
    return record.count - record.unfolded


def append(files: GroupFiles, some: list[RecordedEntry]) -> FileRecord:
    record = files.known("t", anew=True)
    for _ in range(2):
        if (found := files.append("t", "rows", "3", some)) is not None:
            return found
        record = files.known("t", anew=True)
        some = [entry for entry in some if entry.key not in record.keys]
    raise AssertionError("nobody else appends")


@given(st.lists(ENTRIES, max_size=40) | FOLDED)
def test_a_page_holds_what_was_put_into_it(content):
    assert page_read(page_of(content)) == content


@pytest.mark.parametrize("raw", [b"", b"{}", b"E2", b"E1x", b"F1", page_of(entries(0, 2))[:-1]])
def test_a_page_that_was_overwritten_is_told(raw):
    with pytest.raises(RecordUnreadable, match="no page of a record"):
        page_read(raw)


@given(st.lists(st.integers(1, 700), max_size=12), st.integers(0, 2**12))
def test_readers_that_append_in_turn_know_the_same(sizes, turns):
    documents, n = MemoryDocuments(), 0
    readers = [reader(documents), reader(documents)]
    for i, size in enumerate(sizes):
        append(readers[turns >> i & 1], entries(n, n + size))
        n += size
    whole = record_of(documents)
    assert whole.count == n
    for one in readers:
        assert one.known("t", anew=True) == whole
    assert [e for p in range(3) for e in whole.partitions.get(p, ())] == sorted(
        entries(0, n), key=lambda entry: (entry.partition, entry.check)
    )


def test_a_look_reads_what_is_new_and_an_append_writes_the_last_page_alone():
    documents = MemoryDocuments()
    one, two = reader(documents), reader(documents)
    append(one, entries(0, 3 * LONG))
    append(two, entries(3 * LONG, 3 * LONG + 1))
    asked = []
    documents_of = documents.documents
    documents.documents = lambda prefix, after: (
        asked.append(found := documents_of(prefix, after)) or found
    )
    assert one.known("t", anew=True).count == 3 * LONG + 1
    assert [len(answer) for answer, _ in asked] == [1 + 4], (
        "what it has written itself, and one more"
    )
    asked.clear()
    assert one.known("t", anew=True).count == 3 * LONG + 1
    assert [len(answer) for answer, _ in asked] == [0]
    before = set(documents.stored.values())
    append(one, entries(3 * LONG + 1, 3 * LONG + 2))
    assert len(set(documents.stored.values()) - before) == 1


def test_100_000_files_are_recorded_in_few_calls_of_half_a_mb():
    documents = MemoryDocuments()
    record = append(reader(documents), entries(0, 100_000, 8))
    assert record == record_of(documents)
    assert documents.puts == 4
    assert max(len(item.content) for item in documents.stored.values()) < 64_000


@pytest.fixture
def threads_change_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("threads_change_often")
def test_threads_that_share_a_reader_know_every_file_once():
    documents = MemoryDocuments()
    shared = reader(documents)

    def look(n: int) -> None:
        for i in range(20):
            new = RecordedEntry(key_of(f"{n}-{i}"), n % 3, 2, i)
            while new.key not in shared.known("t", anew=True).keys:
                shared.append("t", "rows", "3", [new])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(look, range(6)))
    record = record_of(documents)
    assert record.unfolded == record.count == 120
    assert shared.known("t") == record
    assert pickle.loads(pickle.dumps(GroupFiles(MemoryDocuments()))).known("t") == FileRecord()


def test_too_many_unread_files_are_refused_with_advice():
    files = reader(MemoryDocuments())
    files.known("t")
    with pytest.raises(ValueError, match="have each partition read and committed"):
        files.append("t", "rows", "3", [RecordedEntry(0, 0, 1, 0)] * (MOST_UNREAD + 1))


# --- Folding ----------------------------------------------------------------------------------


def test_what_all_partitions_have_read_is_folded_but_for_the_newest():
    documents = MemoryDocuments()
    one, two = reader(documents), reader(documents)
    append(one, entries(0, 2 * RECENT))
    two.known("t")
    documents.read = {0: 2 * RECENT, 1: 2 * RECENT, 2: 0}
    append(one, entries(2 * RECENT, 2 * RECENT + 1))
    assert folded(record_of(documents)) == 0, "partition 2 has not read its files"
    documents.read[2] = 2 * RECENT
    for n in range(1, 5):
        append(one, entries(2 * RECENT + n, 2 * RECENT + n + 1))
    record = record_of(documents)
    assert folded(record) == 2 * LONG
    assert record.unfolded == 2 * RECENT + 5 - 2 * LONG >= RECENT
    for known in (one.known("t", anew=True), two.known("t", anew=True)):
        assert known == record
    assert record.count == 2 * RECENT + 5
    assert sum(base.files for base in record.bases.values()) == 2 * LONG
    for p in range(3):
        assert record.end(p) == 2 * len([n for n in range(record.count) if n % 3 == p])


def test_a_fold_that_another_has_done_meanwhile_is_read():
    documents = MemoryDocuments()
    one, two = reader(documents), reader(documents)
    append(one, entries(0, 2 * RECENT))
    two.known("t")
    documents.read = dict.fromkeys(range(3), 2 * RECENT)

    def fold_of_the_other() -> None:
        two._fold("t")

    one.known("t", anew=True)
    documents.before_write = fold_of_the_other
    one._fold("t")
    assert folded(record_of(documents)) == LONG
    assert one.known("t", anew=True) == two.known("t", anew=True) == record_of(documents)


def test_a_file_that_was_growing_when_it_was_recorded_is_folded_with_its_rows():
    documents = MemoryDocuments()
    one = reader(documents)
    growing = RecordedEntry(key_of("grows"), 0, None, 0)
    append(one, [*entries(0, LONG - 1), growing])
    append(one, [growing._replace(rows=50), *entries(LONG, 2 * RECENT)])
    documents.read = dict.fromkeys(range(3), 3 * RECENT)
    record = append(one, entries(2 * RECENT, 2 * RECENT + 1))
    assert growing.key not in {entry.key for entry in record.partitions[0]}
    assert record == record_of(documents)
    rows = 2 * (2 * RECENT) + 50
    assert sum(record.end(p) for p in range(3)) == rows


# --- A log behind folded files ----------------------------------------------------------------


def listed(*names: str) -> list[ListedFile]:
    looked = Looked("", False, 1, 1, 1, 0)
    return [ListedFile(name, StorePath("", f"/logs/{name}"), looked) for name in names]


@pytest.fixture
def long_read() -> tuple[MemoryDocuments, list[str]]:
    """A log of files of which the first are folded, and the names of all."""
    documents = MemoryDocuments()
    names = [f"f-{n:06}" for n in range(RECENT + LONG + 99)]
    look(documents, names)
    documents.read = {0: len(names)}
    names.append("f-999990")
    look(documents, names)
    assert folded(record_of(documents)) == LONG
    return documents, names


def look(documents: MemoryDocuments, names: list[str]):
    files = {0: listed(*sorted(names))}
    return in_order(lambda: files, "1", "t", "files", reader(documents))[0]


@pytest.mark.parametrize("name", ["a-new-one", "f-000000b", "z"])
def test_one_that_sorts_in_front_of_folded_files_or_is_old_comes_behind_them(long_read, name):
    documents, names = long_read
    found = look(documents, [*names, name])
    assert found.begin == LONG
    assert found.files[-1].file.name == name
    assert found.begin + len(found.files) == len(names) + 1


def test_folded_files_may_be_deleted(long_read):
    documents, names = long_read
    found = look(documents, names[LONG:])
    assert [placed.file.name for placed in found.files] == sorted(names[LONG:])


def test_offsets_from_before_are_refused_by_the_first_that_is_known(long_read, tmp_path):
    from coordinator.sources.group.reading import Reading

    class Stored:
        number, key, metadata, position, stored = 0, "t-0", "", 5, 5

    documents, _ = long_read
    log = FileLog(str(tmp_path), "t", "files", file_partitions="1")
    log = log.ordered_by(reader(documents))
    with pytest.raises(LogChanged, match="knows the order of files from offset") as told:
        Reading(log, Stored())
    assert told.value.rows_are_gone
