"""Serialisation of large responses, a slice at a time.

gRPC serialises a response in one go: 86 ms for a million partitions. The bytes made here parse to
the same message: concatenated protobuf messages are merged by the parser, so a topic may be written
in pieces of its partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from coordinator.core.replies import FetchReply, ListLogEndsReply, Reply
from coordinator.runtime.slices import Work

LARGE = 20_000
"""Partitions above which a response is serialised in slices: fewer take 2 ms."""
AT_ONCE = 500
"""Partitions in a piece."""
TOPICS_AT_ONCE = 50
_BYTES = 2


@dataclass(frozen=True, slots=True)
class Serialized:
    """A response that is serialised already."""

    data: bytes


def writer(write: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Wrap a serialiser of responses: `Serialized` ones pass as they are."""
    return lambda response: response.data if type(response) is Serialized else write(response)


def is_large(replies: Sequence[Reply]) -> bool:
    """True if the response to these replies has more than `LARGE` partitions."""
    match replies:
        case [FetchReply(offsets=rows) | ListLogEndsReply(ends=rows)]:
            return len(rows) > LARGE
        case _:
            return False


def serialized(response: Any) -> Work[Serialized]:  # Any: a response with topics.
    """Serialise a response whose only large field is `topics`, with `partitions` in each."""
    rest = type(response)()
    for field, value in response.ListFields():
        if field.name != "topics":
            setattr(rest, field.name, value)
    tag = bytes([response.DESCRIPTOR.fields_by_name["topics"].number << 3 | _BYTES])
    pieces = [rest.SerializeToString()]
    for number, topic in enumerate(response.topics, 1):
        data = yield from _topic(topic)
        pieces += (tag, varint(len(data)), data)
        if number % TOPICS_AT_ONCE == 0:
            yield
    return Serialized(b"".join(pieces))


def _topic(topic: Any) -> Work[bytes]:
    partitions = topic.partitions
    if len(partitions) <= AT_ONCE:
        whole: Message = topic
        return whole.SerializeToString()
    pieces = [type(topic)(name=topic.name).SerializeToString()]
    for first in range(0, len(partitions), AT_ONCE):
        piece = type(topic)(partitions=partitions[first : first + AT_ONCE])
        pieces.append(piece.SerializeToString())
        yield
    return b"".join(pieces)


def varint(number: int) -> bytes:
    """Encode a number as a protobuf varint."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
