"""The record of a log that gets a file every ten seconds for a year."""

from __future__ import annotations

from coordinator.sources.group_files import LONG, RECENT
from coordinator.sources.recorded import RecordedEntry
from tests.unit.sources.memory_documents import MemoryDocuments
from tests.unit.sources.test_group_files import append, reader, record_of


def test_a_file_every_ten_seconds_for_a_year_is_recorded_and_known():
    """Looked at four times a day, with the offsets of the look before committed."""
    documents, files = MemoryDocuments(), None
    looks, at_once, partitions = 365 * 4, 6 * 360, 8

    def key(n: int) -> int:
        return n * 0x9E3779B97F4A7C15 % 2**64

    largest = 0
    for look in range(looks):
        if look % 500 == 0:
            files = reader(documents)  # A process that is started anew.
        first = look * at_once
        some = [RecordedEntry(key(n), n % partitions, 2, n) for n in range(first, first + at_once)]
        largest = max(largest, append(files, some).unfolded)
        documents.read = dict.fromkeys(range(partitions), (look + 1) * at_once * 2 // partitions)
    record = record_of(documents)
    assert record.count == looks * at_once == 3_153_600
    assert largest < RECENT + 2 * LONG
    assert sum(len(item.content) for item in documents.stored.values()) < 27_000_000
    assert all(record.end(p) == documents.read[p] for p in range(partitions))
    assert all(key(n) in record.keys for n in range(0, record.count, 9))
    assert not any(key(n) in record.keys for n in range(record.count, record.count + 1_000))
