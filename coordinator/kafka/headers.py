"""Headers of requests and answers, read and written by hand: every frame has one.

Requests: API key, version, correlation id, client id; from an API's first flexible version on also
tagged fields, of which none is known. The client id is a string of two length bytes in all versions
(KIP-482). Answers: the correlation id, and tagged fields where the request had them; answers to
ApiVersions never have them, so that clients can read them without knowing the version (KIP-511).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from coordinator.kafka.apis import API_VERSIONS, Api
from coordinator.kafka.errors import Undecodable

KEY_AND_VERSION = Struct(">hh")
CLIENT_ID_AT = 10
"""Place at which the client id begins: after key, version, correlation id and its own length."""
_REST = Struct(">ih")


class RequestHeader(NamedTuple):
    """Header of a request. `end`: where its body begins in the frame."""

    api: Api
    version: int
    correlation_id: int
    client_id: str
    end: int


def read_header(frame: bytes, api: Api, version: int) -> RequestHeader:
    """Read the header of a request, of which key and version are known.

    Raises:
        Undecodable: it is no such header.
    """
    if len(frame) < CLIENT_ID_AT:
        raise Undecodable("the header is cut off")
    correlation_id, size = _REST.unpack_from(frame, 4)
    end = CLIENT_ID_AT + max(size, 0)
    if size < -1 or end > len(frame):
        raise Undecodable("the client id is longer than the frame")
    try:
        client_id = frame[CLIENT_ID_AT:end].decode()
    except UnicodeDecodeError:
        raise Undecodable("the client id is no text") from None
    if api.is_flexible(version):
        end = skip_tags(frame, end)
    return RequestHeader(api, version, correlation_id, client_id, end)


def answer_header(request: RequestHeader) -> bytes:
    header = request.correlation_id.to_bytes(4, "big", signed=True)
    if request.api.is_flexible(request.version) and request.api is not API_VERSIONS:
        header += b"\0"
    return header


def skip_tags(data: bytes, at: int) -> int:
    """Return the place after tagged fields.

    Raises:
        Undecodable: they are longer than the data.
    """
    count, at = read_uvarint(data, at)
    if count > len(data):
        raise Undecodable("more tagged fields than bytes")
    for _ in range(count):
        _, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        at += size
    if at > len(data):
        raise Undecodable("a tagged field is longer than the data")
    return at


def read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned varint of at most 32 bits, and the place after it.

    Raises:
        Undecodable: it is longer, or cut off.
    """
    value = shift = 0
    while shift < 35:
        if at >= len(data):
            raise Undecodable("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise Undecodable("a number is too long")
