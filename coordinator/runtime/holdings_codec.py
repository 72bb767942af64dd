"""Holdings in snapshots as runs, and what is reserved for a name. Part of `codec`."""

from __future__ import annotations

from collections.abc import Iterable
from sys import intern
from typing import Any

from coordinator.core.values.records import HoldingsStored
from coordinator.durable.v1 import records_pb2 as pb
from coordinator.runtime.field_mapping import distances, ranges

_Topics = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
"""Ranges of partitions by topic."""


def encode_holdings(record: HoldingsStored) -> dict[str, Any]:
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
    return {
        "topic": record.topic,
        "first_partition": record.first_partition,
        "holders": holders,
        "counts": counts,
        "tokens": tokens,
    }


def decode_holdings(m: pb.Holdings, group_id: str) -> HoldingsStored:
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


def encode_topics(topics: _Topics) -> list[dict[str, Any]]:
    """Encode ranges of partitions by topic."""
    return [{"name": topic, "ranges": distances(partitions)} for topic, partitions in topics]


def decode_topics(messages: Iterable[pb.Reservation.Topic]) -> _Topics:
    """Decode ranges of partitions by topic."""
    return tuple((intern(message.name), ranges(message.ranges)) for message in messages)
