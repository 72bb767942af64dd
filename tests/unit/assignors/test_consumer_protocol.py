"""Kafka's bytes: golden values of other clients, round trips, and garbage."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.assignors import consumer_protocol as cp
from coordinator.assignors.base import Subscription
from coordinator.assignors.partitions import TopicPartition

from .laws import tps

# Golden bytes. All were written by kafka-python 3.0.12 (ConsumerProtocolSubscription,
# ConsumerProtocolAssignment and, without its header, StickyAssignorUserData). aiokafka 0.14.0
# (ConsumerProtocolMemberMetadata, ConsumerProtocolMemberAssignment, StickyAssignorUserDataV1)
# wrote the same bytes for the formats it has: version 0 of both and schema 1 of user data.
TOPICS_V0 = "0000000200066f726465727300077ac3bc72696368000000020102"
PARTITIONS = "0000000200066f726465727300000002000000000000000700077ac3bc726963680000000100000002"
GOLDEN_SUBSCRIPTIONS = [
    (0, "0000" + TOPICS_V0),
    (1, "0001" + TOPICS_V0 + PARTITIONS),
    (2, "0002" + TOPICS_V0 + PARTITIONS + "00000029"),
    (3, "0003" + TOPICS_V0 + PARTITIONS + "00000029" + "00067261636b2d61"),
]
GOLDEN_EMPTY_SUBSCRIPTIONS = [
    (0, "000000000000ffffffff"),
    (1, "000100000000ffffffff00000000"),
    (2, "000200000000ffffffff00000000ffffffff"),
    (3, "000300000000ffffffff00000000ffffffffffff"),
]
GOLDEN_ASSIGNMENTS = [(version, f"000{version}{PARTITIONS}00000001ff") for version in range(4)]
GOLDEN_STICKY_USER_DATA_V0 = PARTITIONS
GOLDEN_STICKY_USER_DATA_V1 = PARTITIONS + "00000029"

OWNED = tps("orders:0,7", "zürich:2")
FULL = Subscription(("orders", "zürich"), OWNED, 41, b"\x01\x02", "rack-a")
FULL_IN_VERSION = [
    Subscription(("orders", "zürich"), user_data=b"\x01\x02"),
    Subscription(("orders", "zürich"), OWNED, user_data=b"\x01\x02"),
    Subscription(("orders", "zürich"), OWNED, 41, b"\x01\x02"),
    FULL,
]

DECODERS: list[Callable[[bytes], object]] = [
    cp.decode_subscription,
    cp.subscribed_topics,
    cp.decode_assignment,
    cp.decode_previous_assignment,
    cp.decode_generation,
]


@pytest.mark.parametrize(("version", "golden"), GOLDEN_SUBSCRIPTIONS)
def test_subscription_is_what_other_clients_write(version: int, golden: str) -> None:
    assert cp.encode_subscription(FULL, version).hex() == golden
    assert cp.decode_subscription(bytes.fromhex(golden)) == FULL_IN_VERSION[version]
    assert cp.subscribed_topics(bytes.fromhex(golden)) == {"orders", "zürich"}


@pytest.mark.parametrize(("version", "golden"), GOLDEN_EMPTY_SUBSCRIPTIONS)
def test_empty_subscription_is_what_other_clients_write(version: int, golden: str) -> None:
    assert cp.encode_subscription(Subscription(()), version).hex() == golden
    assert cp.decode_subscription(bytes.fromhex(golden)) == Subscription(())


@pytest.mark.parametrize(("version", "golden"), GOLDEN_ASSIGNMENTS)
def test_assignment_is_what_other_clients_write(version: int, golden: str) -> None:
    assignment = cp.Assignment(OWNED, b"\xff")
    assert cp.encode_assignment(assignment, version).hex() == golden
    assert cp.decode_assignment(bytes.fromhex(golden)) == assignment


def test_sticky_user_data_is_what_other_clients_write() -> None:
    previous = cp.PreviousAssignment(OWNED, 41)
    assert cp.encode_previous_assignment(previous).hex() == GOLDEN_STICKY_USER_DATA_V1
    assert cp.decode_previous_assignment(bytes.fromhex(GOLDEN_STICKY_USER_DATA_V1)) == previous
    assert cp.decode_previous_assignment(
        bytes.fromhex(GOLDEN_STICKY_USER_DATA_V0)
    ) == cp.PreviousAssignment(OWNED, -1)


def test_newer_versions_are_read_as_far_as_we_know_them() -> None:
    newer = b"\x7f\xff" + cp.encode_subscription(FULL)[2:] + b"whatever comes next"
    assert cp.decode_subscription(newer) == FULL
    assert cp.subscribed_topics(newer) == {"orders", "zürich"}
    assignment = cp.Assignment(OWNED, None)
    newer = b"\x00\x09" + cp.encode_assignment(assignment)[2:] + b"whatever comes next"
    assert cp.decode_assignment(newer) == assignment


def test_subscribed_topics_ignores_whatever_follows_version_0() -> None:
    assert cp.subscribed_topics(bytes.fromhex("0003" + TOPICS_V0) + b"\xff") == {
        "orders",
        "zürich",
    }


def test_equal_subscriptions_have_equal_bytes() -> None:
    one = Subscription(("a", "b"), tps("a:0,1", "b:0"))
    other = Subscription(("b", "a", "b"), tps("b:0", "a:1,0,1"))
    assert cp.encode_subscription(one) == cp.encode_subscription(other)


@pytest.mark.parametrize(
    ("malformed", "why"),
    [
        ("", "no version"),
        ("00", "half a version"),
        ("ffff0000000000000000", "negative version"),
        ("0000ffffffffffffffff", "null topics"),
        ("00007fffffffffffffff", "more topics than bytes"),
        ("000000000001ffffffffffff", "null topic"),
        ("000000000001fffe00000000", "topic of length -2"),
        ("00000000000100017fff", "topic beyond the end"),
        ("0000000000010001ffffffffff", "topic that is not UTF-8"),
        ("000000000000", "no user data"),
        ("000000000000fffffffe", "user data of length -2"),
        ("00000000000000000001", "user data beyond the end"),
    ],
)
def test_malformed_version_0_is_refused(malformed: str, why: str) -> None:
    for decode in (cp.decode_subscription, cp.subscribed_topics):
        with pytest.raises(cp.ConsumerProtocolError):
            decode(bytes.fromhex(malformed))


@pytest.mark.parametrize(
    "malformed",
    [
        "000100000000ffffffff",
        "000100000000ffffffffffffffff",
        "000100000000ffffffff7fffffff00000000",
        "000100000000ffffffff0000000100017400000003",
        "000200000000ffffffff00000000ffff",
        "000300000000ffffffff00000000ffffffff",
        "000300000000ffffffff00000000fffffffffffe",
    ],
)
def test_malformed_later_fields_are_refused_but_topics_are_read(malformed: str) -> None:
    with pytest.raises(cp.ConsumerProtocolError):
        cp.decode_subscription(bytes.fromhex(malformed))
    assert cp.subscribed_topics(bytes.fromhex(malformed)) == frozenset()


@pytest.mark.parametrize(
    "encode",
    [
        lambda: cp.encode_subscription(FULL, 4),
        lambda: cp.encode_subscription(FULL, -1),
        lambda: cp.encode_subscription(Subscription(("x" * 32768,))),
        lambda: cp.encode_subscription(Subscription(("\ud800",))),
        lambda: cp.encode_subscription(Subscription((), generation=2**31)),
        lambda: cp.encode_assignment(cp.Assignment((TopicPartition("t", 2**31),))),
        lambda: cp.encode_generation(-(2**31) - 1),
    ],
)
def test_what_does_not_fit_is_refused(encode: Callable[[], bytes]) -> None:
    with pytest.raises(cp.ConsumerProtocolError):
        encode()


NAMES = st.text(max_size=8).filter(lambda name: name.isascii() or name.isprintable())
INT32 = st.integers(-(2**31), 2**31 - 1)
PARTITION_SETS = st.frozensets(st.builds(TopicPartition, NAMES, INT32)).map(
    lambda partitions: tuple(sorted(partitions))
)
USER_DATA = st.none() | st.binary(max_size=8)


@given(
    st.builds(
        Subscription,
        topics=st.frozensets(NAMES).map(lambda topics: tuple(sorted(topics))),
        owned_partitions=PARTITION_SETS,
        generation=INT32,
        user_data=USER_DATA,
        rack=st.none() | NAMES,
    )
)
def test_subscription_comes_back(subscription: Subscription) -> None:
    assert cp.decode_subscription(cp.encode_subscription(subscription)) == subscription
    for version in range(4):
        encoded = cp.encode_subscription(subscription, version)
        assert cp.subscribed_topics(encoded) == frozenset(subscription.topics)
        read = cp.decode_subscription(encoded)
        assert cp.encode_subscription(read, version) == encoded


@given(PARTITION_SETS, USER_DATA, INT32)
def test_assignment_and_user_data_come_back(
    partitions: tuple[TopicPartition, ...], user_data: bytes | None, generation: int
) -> None:
    assignment = cp.Assignment(partitions, user_data)
    assert cp.decode_assignment(cp.encode_assignment(assignment)) == assignment
    previous = cp.PreviousAssignment(partitions, generation)
    assert cp.decode_previous_assignment(cp.encode_previous_assignment(previous)) == previous
    assert cp.decode_generation(cp.encode_generation(generation)) == generation


def _only_the_documented_error(data: bytes) -> None:
    for decode in DECODERS:
        with suppress(cp.ConsumerProtocolError):
            decode(data)


@given(st.binary(max_size=64))
def test_random_bytes_raise_only_the_documented_error(data: bytes) -> None:
    _only_the_documented_error(data)
    _only_the_documented_error(b"\x00\x03" + data)


@given(st.integers(0, 96), st.integers(0, 96), st.binary(max_size=6))
def test_mutilated_bytes_raise_only_the_documented_error(
    start: int, end: int, instead: bytes
) -> None:
    good = bytes.fromhex(GOLDEN_SUBSCRIPTIONS[3][1])
    _only_the_documented_error(good[:start] + instead + good[end:])


@pytest.mark.parametrize("version", range(4))
def test_every_truncation_is_refused(version: int) -> None:
    for golden, decode in (
        (GOLDEN_SUBSCRIPTIONS[version][1], cp.decode_subscription),
        (GOLDEN_ASSIGNMENTS[version][1], cp.decode_assignment),
    ):
        data = bytes.fromhex(golden)
        for end in range(len(data)):
            with pytest.raises(cp.ConsumerProtocolError):
                decode(data[:end])
