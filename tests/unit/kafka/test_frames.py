"""Frames however they arrive, and lengths that are refused."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.kafka.frames import SHORTEST, FrameReader, FrameRefused
from tests.kit.kafka.messages import frame

BODIES = st.lists(st.binary(min_size=SHORTEST, max_size=40), max_size=8)


def taken(reader: FrameReader) -> list[bytes]:
    found = []
    while (each := reader.next()) is not None:
        assert type(each) is bytes
        found.append(each)
    return found


@given(bodies=BODIES, cuts=st.lists(st.integers(0, 300)), eager=st.booleans())
def test_frames_are_the_same_however_their_bytes_arrive(bodies, cuts, eager):
    data = b"".join(map(frame, bodies))
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    reader, found, fed, size = FrameReader(100), [], 0, 0
    for begin, end in pairwise(places):
        reader.feed(data[begin:end])
        fed += end - begin
        if eager:
            new = taken(reader)
            size += sum(4 + len(each) for each in new)
            found += new
            assert reader.waiting_bytes == fed - size
    found += taken(reader)
    assert found == bodies
    assert reader.waiting_bytes == 0


@pytest.mark.parametrize("size", [-1, 0, SHORTEST - 1, 101, 2**31 - 1, -(2**31)])
def test_a_length_is_refused_before_its_bytes_are_kept(size):
    reader = FrameReader(100)
    reader.feed(frame(b"x" * 100) + struct.pack(">i", size))
    assert reader.next() == b"x" * 100
    with pytest.raises(FrameRefused, match=f"{size} bytes; {SHORTEST} to 100"):
        reader.next()


def test_the_limit_may_change_between_frames():
    reader = FrameReader(10)
    reader.feed(frame(b"x" * 10) + frame(b"y" * 20))
    assert reader.next() == b"x" * 10
    reader.most_bytes = 20
    assert reader.next() == b"y" * 20


def test_nothing_is_kept_of_bytes_that_are_used_up():
    reader = FrameReader(1_000_000)
    big = frame(b"x" * 500_000)
    for begin in range(0, len(big), 60_000):
        reader.feed(big[begin : begin + 60_000])
    assert len(reader.next()) == 500_000  # Nothing more is asked while this is served.
    assert (reader.waiting_bytes, len(reader._bytes)) == (0, 0)
