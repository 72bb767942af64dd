"""Codec of entries (frames): a header, the records, and a checksum over both.

    magic 2 | version 2 | shard 4 | sequence 8 | epoch 8 | base offset 8 | records 4
    length 4, record …
    CRC-32C 4

All integers are big-endian. The header holds the shard and the sequence number, so that an intact
entry in the wrong place is noticed too.
"""

from __future__ import annotations

from struct import Struct, error

import google_crc32c

from coordinator.core.values.ids import ShardId
from coordinator.storage.log import Damaged, Entry

MAGIC = b"GL"
VERSION = 1
_HEADER = Struct(">2sHIQQQI")
_UINT32 = Struct(">I")


def encode(shard: ShardId, entry: Entry) -> bytes:
    """Encode an entry; equal entries have equal bytes."""
    parts = [
        _HEADER.pack(
            MAGIC,
            VERSION,
            shard,
            entry.sequence,
            entry.fence_epoch,
            entry.base_offset,
            len(entry.records),
        )
    ]
    for record in entry.records:
        parts += (_UINT32.pack(len(record)), record)
    body = b"".join(parts)
    return body + _UINT32.pack(google_crc32c.value(body))


def decode(data: bytes, shard: ShardId, sequence: int) -> Entry:
    """Decode the entry that is stored as this shard's `sequence`.

    Raises:
        Damaged: the bytes are not what was written there.
    """
    where = f"shard {shard}, entry {sequence}"
    if len(data) < _HEADER.size + _UINT32.size:
        raise Damaged(f"{where}: {len(data)} bytes are less than a header")
    (checksum,) = _UINT32.unpack_from(data, len(data) - _UINT32.size)
    actual = google_crc32c.value(data[: -_UINT32.size])
    if actual != checksum:
        raise Damaged(f"{where}: the checksum is {actual:08x} and should be {checksum:08x}")
    magic, version, its_shard, its_sequence, fence_epoch, base_offset, count = _HEADER.unpack_from(
        data
    )
    if magic != MAGIC or version != VERSION:
        raise Damaged(
            f"{where}: it begins with {magic!r} {version}, which this version cannot read"
        )
    if (its_shard, its_sequence) != (shard, sequence):
        raise Damaged(f"{where}: it belongs to shard {its_shard}, entry {its_sequence}")
    records = []
    position, end = _HEADER.size, len(data) - _UINT32.size
    try:
        for _ in range(count):
            (length,) = _UINT32.unpack_from(data, position)
            position += _UINT32.size
            records.append(data[position : position + length])
            position += length
    except error as beyond:
        raise Damaged(f"{where}: its {count} records do not fit into {end} bytes") from beyond
    if position != end:
        raise Damaged(f"{where}: its records end at byte {position} of {end}")
    return Entry(sequence, fence_epoch, base_offset, tuple(records))
