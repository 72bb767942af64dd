"""Entries of the log: the frame with its checksum, and how they follow each other.

The checksum stops nearly everything, so the bytes are also tried with one that is right, as
they would be from a writer that is broken and not from a disk that is.
"""

import struct

import google_crc32c

from coordinator.core.ids import ShardId
from coordinator.storage import entry
from coordinator.storage.chain import Chain
from coordinator.storage.log import Damaged, Entry

SHARD, SEQUENCE = ShardId(3), 1


def target(data: bytes) -> None:
    sealed = data + struct.pack(">I", google_crc32c.value(data))
    for framed in (data, sealed):
        try:
            found = entry.decode(framed, SHARD, SEQUENCE)
        except Damaged:
            continue
        assert entry.encode(SHARD, found) == framed
        chain = Chain("the log", None)
        try:
            chain.add(found)
        except Damaged:
            continue
        assert [*chain.loaded().records()] == [*found.records]


def seeds():
    for records in ((), (b"one",), (b"", b"two" * 50, b"\xff")):
        # Without the checksum, which the target adds.
        yield entry.encode(SHARD, Entry(SEQUENCE, 2, 0, records))[:-4]
    yield entry.encode(SHARD, Entry(SEQUENCE, 2, 0, (b"whole",)))
