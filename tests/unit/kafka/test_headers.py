"""Headers by hand, against kio in every version."""

from __future__ import annotations

import struct

import pytest

from coordinator.kafka.apis import APIS
from coordinator.kafka.errors import Undecodable
from coordinator.kafka.headers import read_header, read_uvarint, skip_tags
from tests.kit.kafka.messages import header_bytes

every_api = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
CLIENT_IDS = ["", "client", "\u20ac" * 100, None]


@every_api
@pytest.mark.parametrize("client_id", CLIENT_IDS, ids=["empty", "plain", "long", "null"])
@pytest.mark.parametrize("correlation_id", [0, -1, 2**31 - 1, -(2**31)])
def test_headers_are_read_as_kio_writes_them(api, client_id, correlation_id):
    for version in range(api.low, api.high + 1):
        data = header_bytes(api, version, correlation_id, client_id)
        header = read_header(data + b"body", api, version)
        assert header == (api, version, correlation_id, client_id or "", len(data))


@every_api
def test_a_header_that_is_cut_off_is_refused(api):
    data = header_bytes(api, api.high)
    for end in range(8, len(data)):
        with pytest.raises(Undecodable):
            read_header(data[:end], api, api.high)


@pytest.mark.parametrize("size", [-2, -32_768, 32_767, 5])
def test_a_client_id_of_a_wrong_length_is_refused(size):
    api = APIS[11]
    with pytest.raises(Undecodable):
        read_header(struct.pack(">hhih", 11, 0, 1, size) + b"abc", api, 0)


def test_a_client_id_that_is_no_text_is_refused():
    with pytest.raises(Undecodable):
        read_header(struct.pack(">hhih", 11, 0, 1, 1) + b"\xff", APIS[11], 0)


def test_tagged_fields_are_skipped():
    assert skip_tags(b"\0", 0) == 1
    assert skip_tags(b"\2\0\1a\x80\1\2bc-", 0) == 9
    for wrong in (b"", b"\1", b"\1\0", b"\1\0\2a", b"\xff\xff\xff\xff\x0f\0\0"):
        with pytest.raises(Undecodable):
            skip_tags(wrong, 0)


def test_varints():
    for value in (0, 1, 127, 128, 16_383, 16_384, 2**31 - 1, 2**32 - 1):
        data, rest = bytearray(), value
        while rest >= 0x80:
            data.append(rest & 0x7F | 0x80)
            rest >>= 7
        data.append(rest)
        assert read_uvarint(bytes(data) + b"\1", 0) == (value, len(data))
    for wrong in (b"", b"\x80", b"\xff" * 5):
        with pytest.raises(Undecodable):
            read_uvarint(wrong, 0)
