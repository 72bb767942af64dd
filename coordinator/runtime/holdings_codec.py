"""Codec of holdings in snapshots. Part of `session_codec`."""

from __future__ import annotations

from sys import intern

from coordinator.core.session_values.records import HoldingsStored, KeptStored
from coordinator.durable.v1 import records_pb2 as pb
from coordinator.runtime.record_fields import distances, ranges


def encode_holdings(record: HoldingsStored) -> pb.Record:
    """Encode holders and tokens in runs: some 8 bytes a partition at worst."""
    holders: list[int] = []
    counts: list[int] = []
    tokens: list[int] = []
    before, expected = -1, 0
    for holder, token in zip(record.holders, record.tokens, strict=True):
        if holder == before and (token == expected or not holder):
            counts[-1] += 1
        else:
            holders.append(holder)
            counts.append(1)
            tokens.append(token - expected if holder else 0)
        before = holder
        if holder:
            expected = token + 1
    message = pb.Holdings(
        topic=record.topic,
        first_partition=record.first_partition,
        holders=holders,
        counts=counts,
        tokens=tokens,
    )
    return pb.Record(group_id=record.group_id, holdings=message)


def decode_holdings(group_id: str, m: pb.Holdings) -> HoldingsStored:
    """Decode holders and tokens."""
    holders: list[int] = []
    tokens: list[int] = []
    expected = 0
    for holder, count, distance in zip(m.holders, m.counts, m.tokens, strict=True):
        holders += [holder] * count
        if holder:
            first = expected + distance
            expected = first + count
            tokens += range(first, expected)
        else:
            tokens += [0] * count
    return HoldingsStored(
        group_id, intern(m.topic), m.first_partition, tuple(holders), tuple(tokens)
    )


def encode_kept(record: KeptStored) -> pb.Record:
    """Encode what is kept for a name."""
    topics = [
        pb.Kept.Topic(name=topic, ranges=distances(partitions))
        for topic, partitions in record.partitions
    ]
    message = pb.Kept(
        name=record.name, keep_ms=record.keep_ms, topics=topics, delayed=record.is_delayed
    )
    return pb.Record(group_id=record.group_id, kept=message)


def decode_kept(group_id: str, m: pb.Kept) -> KeptStored:
    """Decode what is kept for a name."""
    partitions = tuple((intern(topic.name), ranges(topic.ranges)) for topic in m.topics)
    return KeptStored(group_id, m.name, m.keep_ms, partitions, m.delayed)
