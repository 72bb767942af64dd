"""Kafka's bytes for subscriptions and assignments, so that Kafka's tools can read ours.

The coordinator carries these bytes without looking inside, with one exception:
`subscribed_topics`. All integers are big-endian.

    subscription  version int16 | topics [string] | user_data bytes?
                  version 1:    | owned_partitions [topic string, partitions [int32]]
                  version 2:    | generation_id int32
                  version 3:    | rack_id string?
    assignment    version int16 | partitions [topic string, partitions [int32]] | user_data bytes?
    sticky's user data, without a version in front:
                  schema 0:       previous assignment [topic string, partitions [int32]]
                  schema 1:     | generation int32
    cooperative-sticky's user data: generation int32

`string` is an int16 length and UTF-8; `bytes` and `[...]` have an int32 length; `?` may be
absent, with length -1. Later versions only ever append, so a reader takes the part it knows
and ignores the rest, whatever the version says and however long the rest is.

Topics and partitions are written sorted and once each: equal subscriptions give equal bytes,
and a member that rejoins with nothing new does not look like one that changed its mind.

Every length is checked against the bytes that are left before anything is allocated.
`ConsumerProtocolError` is the only exception that any function here raises.

Source: KIP-429 (1), KIP-792 (2), KIP-881 (3); KIP-54 and KIP-341 for sticky's user data.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct

from coordinator.assignors.base import NO_GENERATION, Subscription
from coordinator.assignors.partitions import TopicPartition

NEWEST_VERSION = 3
"""Newest version whose fields are all known; the one that is written."""

NO_BOUND = 2**31
"""Larger than the length of any array."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_STRING_SIZE_BYTES_MIN = 2
_TOPIC_PARTITIONS_SIZE_BYTES_MIN = 6


class ConsumerProtocolError(ValueError):
    """The bytes are not what they should be, or the values do not fit into the format."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Assignment of one member, as its leader sends it."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class PreviousAssignment:
    """Previous assignment, which a member of a sticky group sends as user data."""

    partitions: tuple[TopicPartition, ...]
    generation: int = NO_GENERATION
    """The generation of `partitions`; -1 from a client that writes schema 0."""


def encode_subscription(subscription: Subscription, version: int = NEWEST_VERSION) -> bytes:
    """Encode the `metadata` of a JoinGroup.

    Args:
        subscription: fields that `version` does not have are left out; `instance_id` is in
            no version.
        version: 0 to 3.
    Raises:
        ConsumerProtocolError: unknown version, a name over 32,767 bytes, or a number beyond
            its integer.
    Source: Kafka `ConsumerProtocolSubscription`.
    """
    out = _Writer(version)
    topics = sorted(set(subscription.topics))
    out.int32(len(topics))
    for topic in topics:
        out.string(topic)
    out.nullable_bytes(subscription.user_data)
    if version >= 1:
        out.topic_partitions(subscription.owned_partitions)
    if version >= 2:
        out.int32(subscription.generation)
    if version >= 3:
        out.nullable_string(subscription.rack)
    return out.to_bytes()


def decode_subscription(metadata: bytes) -> Subscription:
    """Decode the `metadata` of a JoinGroup, any version.

    Returns:
        Fields that the version lacks have their default; `instance_id` is always None.
        Topics and partitions come in the order of the bytes.
    Raises:
        ConsumerProtocolError: truncated, a negative or impossible length, not UTF-8.
    Source: Kafka `ConsumerProtocolSubscription`.
    """
    reader = _Reader(metadata)
    version = reader.version()
    topics, user_data = _read_subscription_prefix(reader)
    return Subscription(
        topics=topics,
        user_data=user_data,
        owned_partitions=reader.topic_partitions() if version >= 1 else (),
        generation=reader.int32() if version >= 2 else NO_GENERATION,
        rack=reader.nullable_string() if version >= 3 else None,
    )


def subscribed_topics(metadata: bytes, most: int = NO_BOUND) -> frozenset[str]:
    """The topics in the `metadata` of a JoinGroup, from its version-0 part alone.

    The coordinator reads nothing else of it, so fields of later versions cannot break it.

    Args:
        most: limit of topics; a longer array is refused before it is read.
    Raises:
        ConsumerProtocolError: the version-0 part is malformed, or names more topics.
    Source: KIP-211; Kafka `GroupMetadata.computeSubscribedTopics`.
    """
    reader = _Reader(metadata, most)
    reader.version()
    topics, _ = _read_subscription_prefix(reader)
    return frozenset(topics)


def owned_partitions(metadata: bytes, most: int = NO_BOUND) -> tuple[TopicPartition, ...]:
    """The partitions that a member holds as it joins; none in schema 0, of eager members.

    Args:
        most: limit of elements of each array; a longer one is refused before it is read.
    Raises:
        ConsumerProtocolError: the metadata are malformed, or longer.
    Source: KIP-429; Kafka `ConsumerProtocolSubscription`.
    """
    reader = _Reader(metadata, most)
    version = reader.version()
    _read_subscription_prefix(reader)
    return reader.topic_partitions() if version >= 1 else ()


def encode_assignment(assignment: Assignment, version: int = NEWEST_VERSION) -> bytes:
    """Encode one member's `assignment` in the leader's SyncGroup.

    Args:
        version: 0 to 3; they differ in nothing but this number.
    Raises:
        ConsumerProtocolError: as for `encode_subscription`.
    Source: Kafka `ConsumerProtocolAssignment`.
    """
    out = _Writer(version)
    out.topic_partitions(assignment.partitions)
    out.nullable_bytes(assignment.user_data)
    return out.to_bytes()


def decode_assignment(data: bytes, most: int = NO_BOUND) -> Assignment:
    """Decode the `assignment` of a SyncGroup response, any version.

    Args:
        most: limit of topics, and of partitions in all.
    Raises:
        ConsumerProtocolError: as for `decode_subscription`. Empty bytes, which a coordinator
            sends to a member that the leader left out, are malformed too: test for them first.
    Source: Kafka `ConsumerProtocolAssignment`.
    """
    reader = _Reader(data, most)
    reader.version()
    return Assignment(partitions=reader.topic_partitions(), user_data=reader.nullable_bytes())


def partitions_in(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """Partitions in an assignment; None if it is not of the consumer protocol."""
    try:
        return decode_assignment(assignment).partitions
    except ConsumerProtocolError:
        return None


def encode_previous_assignment(previous: PreviousAssignment) -> bytes:
    """User data for the next JoinGroup of a member under `sticky`, schema 1.

    Raises:
        ConsumerProtocolError: as for `encode_subscription`.
    Source: Kafka `StickyAssignor`, KIP-341.
    """
    out = _Writer()
    out.topic_partitions(previous.partitions)
    out.int32(previous.generation)
    return out.to_bytes()


def decode_previous_assignment(user_data: bytes) -> PreviousAssignment:
    """Decode the previous assignment of a member under `sticky`, from schema 0 or 1.

    The bytes do not name their schema: if any follow the partitions, it is schema 1.

    Raises:
        ConsumerProtocolError: as for `decode_subscription`.
    Source: Kafka `StickyAssignor`, KIP-54, KIP-341.
    """
    reader = _Reader(user_data)
    partitions = reader.topic_partitions()
    generation = reader.int32() if reader.remaining() > 0 else NO_GENERATION
    return PreviousAssignment(partitions, generation)


def encode_generation(generation: int) -> bytes:
    """User data for the next JoinGroup of a member under `cooperative-sticky`.

    Raises:
        ConsumerProtocolError: the generation does not fit into 32 bits.
    Source: Kafka `CooperativeStickyAssignor`.
    """
    out = _Writer()
    out.int32(generation)
    return out.to_bytes()


def decode_generation(user_data: bytes) -> int:
    """The generation in the user data of a member under `cooperative-sticky`.

    Raises:
        ConsumerProtocolError: fewer than 4 bytes.
    Source: Kafka `CooperativeStickyAssignor`.
    """
    return _Reader(user_data).int32()


class _Writer:
    """Appends the format's primitives."""

    def __init__(self, version: int | None = None) -> None:
        self._parts: list[bytes] = []
        if version is not None:
            if not 0 <= version <= NEWEST_VERSION:
                raise ConsumerProtocolError(f"version {version} is not one of 0-{NEWEST_VERSION}")
            self._parts.append(_INT16.pack(version))

    def to_bytes(self) -> bytes:
        return b"".join(self._parts)

    def int32(self, value: int) -> None:
        if not -(2**31) <= value < 2**31:
            raise ConsumerProtocolError(f"{value} does not fit into 32 bits")
        self._parts.append(_INT32.pack(value))

    def string(self, value: str) -> None:
        try:
            encoded = value.encode()
        except UnicodeEncodeError as error:
            raise ConsumerProtocolError(f"{value!r} has no UTF-8 form") from error
        if len(encoded) >= 2**15:
            raise ConsumerProtocolError(f"a string of {len(encoded)} bytes; 32767 is the limit")
        self._parts += (_INT16.pack(len(encoded)), encoded)

    def nullable_string(self, value: str | None) -> None:
        if value is None:
            self._parts.append(_INT16.pack(-1))
        else:
            self.string(value)

    def nullable_bytes(self, value: bytes | None) -> None:
        if value is None:
            self.int32(-1)
        else:
            self.int32(len(value))
            self._parts.append(value)

    def topic_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(set(partitions)):
            by_topic.setdefault(topic, []).append(partition)
        self.int32(len(by_topic))
        for topic, numbers in by_topic.items():
            self.string(topic)
            self.int32(len(numbers))
            for number in numbers:
                self.int32(number)


class _Reader:
    """Takes the format's primitives off the front; never reads past the end."""

    def __init__(self, data: bytes, most: int = NO_BOUND) -> None:
        self._data = data
        self._most = most
        self._position = 0

    def remaining(self) -> int:
        return len(self._data) - self._position

    def version(self) -> int:
        version = self._int16()
        if version < 0:
            raise ConsumerProtocolError(f"version {version} is negative")
        return version

    def int32(self) -> int:
        value: int = _INT32.unpack(self._take(4))[0]
        return value

    def array_length(self, element_size_bytes_min: int) -> int:
        """Read an array's length; refused if the remaining bytes cannot hold as many elements."""
        length = self.int32()
        if not 0 <= length <= self.remaining() // element_size_bytes_min:
            raise self._malformed(f"an array of {length} elements")
        if length > self._most:
            raise self._malformed(f"{length} elements, more than {self._most}")
        return length

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise self._malformed("a string of length -1")
        return value

    def nullable_string(self) -> str | None:
        length = self._int16()
        if length == -1:
            return None
        encoded = self._take(length)
        try:
            return encoded.decode()
        except UnicodeDecodeError as error:
            raise self._malformed("a string that is not UTF-8") from error

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length == -1 else self._take(length)

    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """The hot path of the sticky assignor, hence without a call for each primitive.

        1,000 members' 50,000 entries of one partition each take 50 ms instead of 130 ms.
        """
        partitions: list[TopicPartition] = []
        count = self.array_length(_TOPIC_PARTITIONS_SIZE_BYTES_MIN)
        data, position, end = self._data, self._position, len(self._data)
        int16_at, int32_at = _INT16.unpack_from, _INT32.unpack_from
        for _ in range(count):
            start = position + 2
            length = int16_at(data, position)[0] if start <= end else -1
            position = start + length
            numbers_start = position + 4
            if length < 0 or numbers_start > end:
                raise self._malformed("a list of partitions")
            try:
                topic = data[start:position].decode()
            except UnicodeDecodeError as error:
                raise self._malformed("a topic that is not UTF-8") from error
            length = int32_at(data, position)[0]
            position = numbers_start + 4 * length
            if length < 0 or position > end or len(partitions) + length > self._most:
                raise self._malformed(f"{length} partitions of a topic")
            for number_start in range(numbers_start, position, 4):
                partitions.append(TopicPartition(topic, int32_at(data, number_start)[0]))
        self._position = position
        return tuple(partitions)

    def _int16(self) -> int:
        value: int = _INT16.unpack(self._take(2))[0]
        return value

    def _take(self, length: int) -> bytes:
        if not 0 <= length <= self.remaining():
            raise self._malformed(f"a field of {length} bytes")
        start = self._position
        self._position += length
        return self._data[start : self._position]

    def _malformed(self, reason: str) -> ConsumerProtocolError:
        return ConsumerProtocolError(
            f"{reason}, read up to byte {self._position} of {len(self._data)}"
        )


def _read_subscription_prefix(reader: _Reader) -> tuple[tuple[str, ...], bytes | None]:
    """The part of a subscription that every version has: topics and user data."""
    topics = tuple(reader.string() for _ in range(reader.array_length(_STRING_SIZE_BYTES_MIN)))
    return topics, reader.nullable_bytes()
