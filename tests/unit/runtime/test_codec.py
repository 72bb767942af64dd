"""Records come back as they went, whatever is in them; what is not understood stops the load."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.values.ids import ShardId
from coordinator.core.values.rebalance_journal import (
    PartitionMove,
    PartitionRange,
    RebalanceMember,
    RebalanceRecord,
    RemovedMember,
)
from coordinator.core.values.records import (
    DocumentStored,
    GenerationFloor,
    GroupDeleted,
    GroupMetadata,
    ManifestStored,
    MemberRecord,
    OffsetCommitted,
    OffsetDeleted,
    Record,
    SessionRecord,
)
from coordinator.durable.v1 import records_pb2 as pb
from coordinator.runtime.codec import decode, encode
from coordinator.storage import entry as frames
from coordinator.storage.log import Damaged, Entry

TEXT = st.text(max_size=20)
MAYBE_TEXT = st.none() | TEXT
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
BYTES = st.binary(max_size=50)
BY_TYPE = {
    "str": TEXT,
    "str | None": MAYBE_TEXT,
    "int": INT32,
    "int | None": st.none() | INT64,
    "bytes": BYTES,
    "bool": st.booleans(),
}
NESTED = {
    kind.__name__: kind
    for kind in (MemberRecord, RebalanceMember, RemovedMember, PartitionMove, PartitionRange)
}
WIDE = ("offset", "committed_at_ms", "state_changed_at_ms")


def values(kind: type) -> st.SearchStrategy:
    """Any record of a kind, of any values its fields can have."""
    fields = {}
    for field in dataclasses.fields(kind):
        nested = NESTED.get(field.type.removeprefix("tuple[").removesuffix(", ...]"))
        if nested is not None:
            fields[field.name] = st.lists(values(nested), max_size=4).map(tuple)
        elif field.name in WIDE:
            fields[field.name] = INT64
        else:
            fields[field.name] = BY_TYPE[field.type]
    return st.builds(kind, **fields)


KINDS = (
    GroupMetadata,
    GenerationFloor,
    OffsetCommitted,
    ManifestStored,
    DocumentStored,
    OffsetDeleted,
    GroupDeleted,
    RebalanceRecord,
)


def test_every_kind_of_record_is_tried():
    # Those of sessions have a test of their own, test_session_codec.py.
    assert set(KINDS) == set(Record.__args__) - set(SessionRecord.__args__)


@given(st.one_of(*map(values, KINDS)))
def test_a_record_comes_back_as_it_went(record):
    assert decode(encode(record)) == record
    assert encode(decode(encode(record))) == encode(record)


def test_a_kind_of_a_newer_version_stops_the_load():
    newer = pb.Record(group_id="g").SerializeToString() + b"\xfa\x01\x02hi"
    with pytest.raises(Damaged, match="group 'g' is of a kind that this version does not know"):
        decode(newer)


def test_garbage_stops_the_load():
    with pytest.raises(Damaged, match="cannot be read"):
        decode(b"\xff\xff\xff")


MEMBER = MemberRecord("m-1", "i-1", "c", "/10.0.0.1", 300_000, 45_000, b"\x00\x03sub", b"share")
WRITTEN_BY_VERSION_1 = {
    "0a0167124f08071208636f6e73756d65721a0572616e676522036d2d312880d095ffbc31322e0a036d2d311203"
    "692d311a016322092f31302e302e302e3128e0a71230c8df023a05000373756242057368617265": GroupMetadata(
        "g", 7, "consumer", "range", "m-1", 1_700_000_000_000, (MEMBER,)
    ),
    "0a0167120908082881d095ffbc31": GroupMetadata("g", 8, None, None, None, 1_700_000_000_001),
    "0a01671a020809": GenerationFloor("g", 9),
    "0a016722160a01741003182a20052a046e6f74653082d095ffbc31": OffsetCommitted(
        "g", "t", 3, 42, 5, "note", 1_700_000_000_002
    ),
    "0a016722190a0174100420ffffffffffffffffff0130013883d095ffbc31": OffsetCommitted(
        "g", "t", 4, 0, -1, "", 1, 1_700_000_000_003
    ),
    "0a01672a040a02006d": ManifestStored("g", b"\x00m"),
    "0a0167b201090a01611202006d1807": DocumentStored("g", "a", b"\x00m", 7),
    "0a016732050a01741003": OffsetDeleted("g", "t", 3),
    "0a01673a00": GroupDeleted("g"),
}


@pytest.mark.parametrize("data", WRITTEN_BY_VERSION_1)
def test_what_was_written_once_is_read_for_ever(data):
    """These bytes are in people's stores. A change that breaks this test loses their groups."""
    record = WRITTEN_BY_VERSION_1[data]
    assert decode(bytes.fromhex(data)) == record
    assert encode(record).hex() == data


def test_an_entry_that_was_written_once_is_read_for_ever():
    data = bytes.fromhex(
        "474c00010000000300000000000000050000000000000002000000000000000b00000002"
        "000000036f6e65000000009e6ae797"
    )
    entry = Entry(5, 2, 11, (b"one", b""))
    assert frames.decode(data, ShardId(3), 5) == entry
    assert frames.encode(ShardId(3), entry) == data
