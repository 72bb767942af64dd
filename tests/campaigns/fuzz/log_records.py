"""Records of the log, in a frame with its checksum, and a shard that is loaded from them.

The checksum stops nearly everything, so bytes are tried as a frame with one that is right, as they
would be from a writer that is broken and not from a disk that is; and as a record.
"""

import dataclasses
import struct

import google_crc32c

from coordinator.core.config import GroupConfig
from coordinator.core.values.errors import InvariantViolated
from coordinator.core.values.ids import ShardId
from coordinator.core.values.rebalance_journal import (
    RebalanceMember,
    RebalanceRecord,
    RemovedMember,
)
from coordinator.core.values.records import (
    GenerationFloor,
    GroupDeleted,
    GroupMetadata,
    ManifestStored,
    MemberRecord,
    OffsetCommitted,
    OffsetDeleted,
)
from coordinator.runtime import codec
from coordinator.runtime.clock import RandomIds
from coordinator.runtime.payloads import PAYLOADS
from coordinator.shard.followers import AckPolicy
from coordinator.shard.inputs import Tick
from coordinator.shard.shard import Shard
from coordinator.storage import entry
from coordinator.storage.chain import Chain
from coordinator.storage.log import Damaged, Entry
from tests.kit.steps import restored, stepped

NOW_MS = 1_700_000_000_000
SHARD, SEQUENCE = ShardId(3), 1


def target(data: bytes) -> None:
    _load_frame(data)
    _load_frame(data + struct.pack(">I", google_crc32c.value(data)))
    _load_record(data)


def _load_frame(data: bytes) -> None:
    chain = Chain("the log", None)
    try:
        found = entry.decode(data, SHARD, SEQUENCE)
        chain.add(found)
    except Damaged:
        return
    assert entry.encode(SHARD, found) == data
    assert [*chain.loaded().records()] == [*found.records]


def _load_record(data: bytes) -> None:
    try:
        record = codec.decode(data)
    except Damaged:
        return
    assert codec.decode(codec.encode(record)) == record
    shard = Shard(GroupConfig(), RandomIds(), PAYLOADS, now_ms=NOW_MS, acks=AckPolicy())
    try:
        shard.replay([record], NOW_MS)
        restored(shard, NOW_MS, sequence=1, next_offset=1)
        stepped(shard, Tick(), NOW_MS + 60_000)
    except InvariantViolated:  # Understood, and impossible: no shard has written that.
        return
    for kept in shard.records():
        assert codec.decode(codec.encode(kept)) == kept


def seeds():
    for records in ((), (b"one",), (b"", b"two" * 50, b"\xff")):
        frame = entry.encode(SHARD, Entry(SEQUENCE, 2, 0, records))
        yield from (frame, frame[:-4])  # Also without the checksum, which is added.
    member = MemberRecord("a-1", "a", "client", "/10.0.0.1", 60_000, 10_000, b"\0\1", b"\0\0")
    for record in (
        GroupMetadata("g", 4, "consumer", "range", "a-1", 1_700_000_000_000, (member,)),
        GroupMetadata("g", 5, None, None, None, 0, ()),
        GenerationFloor("g", 9),
        OffsetCommitted("g", "orders", 3, 2**40, 7, "noted", 1_700_000_000_000, None),
        OffsetCommitted("g", "orders", 3, 0, -1, "", 1, 2),
        ManifestStored("g", b"manifest"),
        OffsetDeleted("g", "orders", 3),
        GroupDeleted("g"),
        _rebalance(),
    ):
        yield codec.encode(record)


def _rebalance() -> RebalanceRecord:
    """One with something in every field."""
    values = {"int": 7, "str": "x", "bool": True}
    plain = {
        field.name: values[str(field.type)]
        for field in dataclasses.fields(RebalanceRecord)
        if str(field.type) in values
    }
    member = RebalanceMember("a-1", "client", "/10.0.0.1", True, 10_000, 5, 6)
    removed = RemovedMember("b-1", "client", "/10.0.0.2", "left", client_software="lib 1")
    return RebalanceRecord(**{**plain, "members": (member,), "removed": (removed,)})
