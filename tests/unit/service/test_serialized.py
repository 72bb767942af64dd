"""A response that is serialised in pieces is the response."""

from __future__ import annotations

import pytest

from coordinator.core.values import replies as r
from coordinator.runtime.slices import at_once
from coordinator.service.grpc.serialized import LARGE, Serialized, is_large, serialized, writer
from coordinator.v1 import admin_pb2
from coordinator.v1 import group_pb2 as pb


@pytest.mark.parametrize("sizes", [[], [0], [1], [500], [501, 3], [1_234, 0, 2_000], [1] * 3_000])
def test_pieces_make_the_whole(sizes):
    response = pb.OffsetFetchResponse(error_code=3, error_message="what", manifest=b"m")
    for number, size in enumerate(sizes):
        topic = response.topics.add(name=f"t{number}" * 50)
        for partition in range(size):
            topic.partitions.add(partition_index=partition, committed_offset=partition * 2**20)
    made = at_once(serialized(response))
    assert pb.OffsetFetchResponse.FromString(made.data) == response
    parts = sum(1 for _ in serialized(response))
    assert parts >= sum(1 + size for size in sizes) // 2_000


def test_log_ends_are_made_so_too():
    response = admin_pb2.ListLogEndsResponse()
    topic = response.topics.add(name="t")
    for partition in range(1_000):
        topic.partitions.add(partition_index=partition, log_end_offset=7, reported_at_ms=8)
    data = at_once(serialized(response)).data
    assert admin_pb2.ListLogEndsResponse.FromString(data) == response


def test_only_what_is_large_is_serialised_in_pieces():
    offset = r.FetchedOffset("t", 0)
    assert is_large([r.FetchReply(offsets=(offset,) * (LARGE + 1))])
    assert is_large([r.ListLogEndsReply(ends=(r.LogEnd("t", 0, 0, 0),) * (LARGE + 1))])
    assert not is_large([r.FetchReply(offsets=(offset,) * LARGE)])
    assert not is_large([r.HeartbeatReply()] * (LARGE + 1))
    assert not is_large([])


def test_a_writer_takes_both():
    write = writer(pb.HeartbeatResponse.SerializeToString)
    assert write(Serialized(b"bytes")) == b"bytes"
    assert write(pb.HeartbeatResponse(error_code=3)) == b"\x08\x03"
