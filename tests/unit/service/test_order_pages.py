"""Orders in pages: none is larger than it may be, and together they are complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from coordinator.core.values.session_messages import (
    AttachReply,
    HeartbeatAck,
    Order,
    OrderedPartition,
    Orders,
    ToMember,
)
from coordinator.service.grpc.translate import sessions
from coordinator.v1 import session_pb2 as pb

TOKEN = 1_790_000_000 << 20
LONG = "n" * 249


def single(count: int, topic: str = "t", offset: int = -1) -> list[OrderedPartition]:
    """Partitions of which none follows the one before: their tokens fall."""
    return [
        OrderedPartition(topic, p, Order.ACTIVE, TOKEN - 2 * p, offset=offset) for p in range(count)
    ]


def running(count: int, offset: int) -> list[OrderedPartition]:
    return [
        OrderedPartition("t", p, Order.ACTIVE, TOKEN + p, offset=offset + p) for p in range(count)
    ]


def topics(count: int) -> list[OrderedPartition]:
    names = (f"{number:03}{LONG[3:]}" for number in range(count))
    return [OrderedPartition(name, 0, Order.ACTIVE, TOKEN - n) for n, name in enumerate(names)]


def pages(partitions: Iterable[OrderedPartition]) -> list[pb.Orders]:
    return list(sessions.order_pages(Orders(7, 6, tuple(partitions), 3), 1))


def read(found: Iterable[pb.Orders]) -> Iterator[tuple[str, int, int, int]]:
    """Topic, partition, token and offset of each."""
    for page in found:
        for topic in page.topics:
            for span in topic.ranges:
                first, offsets = span.partitions.first, span.committed_offsets
                for p in range(first, span.partitions.last + 1):
                    offset = offsets[p - first] if offsets else -1
                    yield topic.name, p, span.partitions.first_token + p - first, offset


def said(partitions: Iterable[OrderedPartition]) -> list[tuple[str, int, int, int]]:
    return [
        (partition.topic, partition.partition, partition.token, partition.offset)
        for partition in partitions
    ]


LARGE = {
    "250,000 single ranges": single(250_000),
    "with offsets": single(60_000, offset=1 << 60),
    "a long name": single(60_000, LONG),
    "many long names": topics(9_000),
    "one range with offsets": running(250_000, 1 << 60),
    "one range of which one has an offset": [
        *running(1, 5), *running(250_000, -1)[1:]
    ],
}  # fmt: skip


@pytest.mark.parametrize("partitions", LARGE.values(), ids=LARGE)
def test_a_large_state_comes_in_full_pages_that_are_small(
    partitions: list[OrderedPartition],
) -> None:
    paged = pages(partitions)
    sizes = [page.ByteSize() for page in paged]
    assert max(sizes) <= sessions.PAGE_BYTES
    assert all(size > sessions.PAGE_BYTES // 4 for size in sizes[:-1])
    assert [page.is_part for page in paged] == [True] * (len(paged) - 1) + [False]
    assert {(page.version, page.based_on, page.answers) for page in paged} == {(7, 6, 3)}
    assert list(read(paged)) == said(partitions)


@pytest.mark.parametrize("partitions", [[], single(1), running(1_000, 1)], ids=len)
def test_a_small_state_is_one_page(partitions: list[OrderedPartition]) -> None:
    (page,) = pages(partitions)
    assert not page.is_part
    assert list(read([page])) == said(partitions)


@pytest.mark.parametrize("limit", range(60, 400, 7))
def test_pages_hold_as_much_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(sessions, "PAGE_BYTES", limit)
    partitions = [*single(20, "a"), *single(3, "b" * 40), *single(20, "c")]
    paged = pages(partitions)
    assert list(read(paged)) == said(partitions)
    for page in paged:
        ranges = sum(len(topic.ranges) for topic in page.topics)
        assert page.ByteSize() <= limit or ranges == 1
        assert not page.is_part or ranges == 1 or page.ByteSize() > limit * 3 // 4 - 60


def test_the_first_page_comes_with_the_answer_and_the_others_when_they_are_asked_for() -> None:
    orders = Orders(1, -1, tuple(single(60_000)))
    told = sessions.attached(AttachReply(orders=orders), 1)
    first, *others = told
    assert first.attached.orders.is_part
    assert list(read([first.attached.orders, *(other.orders for other in others)])) == said(
        orders.partitions
    )


def test_partitions_that_are_not_renewed_are_told_in_ranges() -> None:
    places = tuple(("t", p) for p in range(250_000) if p != 5)
    (message,) = sessions.outgoing(ToMember(HeartbeatAck(9, places), None), AttachReply(), 1)
    (topic,) = message.heartbeat_ack.expiring
    assert [(partition.first, partition.last) for partition in topic.partitions] == [
        (0, 4),
        (6, 249_999),
    ]


def test_the_last_page_of_a_part_is_a_part() -> None:
    part = Orders(7, -1, tuple(single(3)), is_part=True)
    assert [page.is_part for page in sessions.order_pages(part, 1)] == [True]
