"""Records that restore a session group. Listing them copies columns; encoding comes later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from coordinator.core.sessions.holdings import TopicHoldings, ranges_of
from coordinator.core.values.records import HoldingsStored, PhaseEntered, Record, ReservationStored

CHUNK = 2_000
"""Partitions in one record: a millisecond or two to encode."""


def holdings_of(
    group_id: str,
    member_ids: Iterable[str],
    topics: Iterable[TopicHoldings],
    reserved_names: Mapping[str, int],
) -> Iterator[Record]:
    """Records of holders, of open hand-offs, and of partitions that are reserved for names.

    `member_ids`: in the order of the snapshot's records. `reserved_names`: for how long, by name.
    """
    numbers = {member_id: number for number, member_id in enumerate(member_ids, 1)}
    numbers[""] = 0
    reserved: dict[str, dict[str, list[int]]] = {name: {} for name in reserved_names}
    delayed: set[str] = set()
    for topic in topics:
        yield from _columns_of(group_id, topic, numbers)
        for partition, handoff in topic.open.items():
            yield PhaseEntered(
                group_id,
                topic.topic,
                partition,
                handoff.phase,
                handoff.handoff_id,
                handoff.successor,
                handoff.length_ms,
                handoff.position,
                topic.tokens[partition],
                handoff.line,
            )
        for partition, reservation in sorted(topic.reserved.items()):
            reserved[reservation.name].setdefault(topic.topic, []).append(partition)
            if reservation.is_delayed:
                delayed.add(reservation.name)
    for name, by_topic in reserved.items():
        partitions = tuple(
            (topic, ranges_of(partitions_held)) for topic, partitions_held in by_topic.items()
        )
        yield ReservationStored(group_id, name, reserved_names[name], partitions, name in delayed)


def _columns_of(
    group_id: str, topic: TopicHoldings, numbers: dict[str, int]
) -> Iterator[HoldingsStored]:
    for begin in range(0, len(topic.holders), CHUNK):
        tokens = topic.tokens[begin : begin + CHUNK]
        while tokens and not tokens[-1]:
            del tokens[-1]  # Rows that nobody holds: nothing is known of them.
        if tokens:
            holders = topic.holders[begin : begin + len(tokens)]
            numbered = tuple(map(numbers.__getitem__, holders))
            yield HoldingsStored(group_id, topic.topic, begin, numbered, tuple(tokens))
