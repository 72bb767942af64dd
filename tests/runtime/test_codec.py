"""Records come back as they went, whatever is in them; what is not understood stops the load."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.records import (
    GenerationFloor,
    GroupDeleted,
    GroupMetadata,
    ManifestStored,
    MemberRecord,
    OffsetCommitted,
    OffsetDeleted,
    Record,
)
from coordinator.durable.v1 import records_pb2 as pb
from coordinator.runtime.codec import decode, encode
from coordinator.storage.log import Damaged

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
}
WIDE = ("offset", "committed_at_ms", "state_changed_at_ms")


def values(kind: type) -> st.SearchStrategy:
    """Any record of a kind, of any values its fields can have."""
    fields = {}
    for field in dataclasses.fields(kind):
        if field.name == "members":
            fields[field.name] = st.lists(values(MemberRecord), max_size=4).map(tuple)
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
    OffsetDeleted,
    GroupDeleted,
)


def test_every_kind_of_record_is_tried():
    assert set(KINDS) == set(Record.__args__)


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
