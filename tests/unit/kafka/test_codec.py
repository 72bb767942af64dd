"""Every version of every API: what kio writes is read, and what is written kio reads."""

from __future__ import annotations

import random
import struct

import pytest

from coordinator.kafka import apis, codec
from coordinator.kafka.apis import API_VERSIONS, APIS, NEVER
from coordinator.kafka.errors import Undecodable
from coordinator.kafka.headers import RequestHeader, read_header
from coordinator.kafka.schema import fields_of, is_flexible, request_schema, response_schema
from coordinator.runtime.slices import at_once
from tests.kit.kafka.messages import (
    answer,
    anything,
    header_bytes,
    made,
    request,
    values_of,
    written,
)

every_api = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
ROUNDS = 2


def versions_of(api):
    return range(api.low, api.high + 1)


def header_of(api, version, data=b""):
    return RequestHeader(api, version, 7, "client", 0)


def encoded(header, values) -> bytes:
    return at_once(codec.encode(header, values))


def some_requests(api, version):
    chance = random.Random(f"{api.name} {version}")
    for _ in range(ROUNDS):
        yield anything(request_schema(api.key, version), chance)


# --- The table ---


@every_api
def test_the_table_says_which_versions_are_flexible(api):
    for version in versions_of(api):
        assert is_flexible(request_schema(api.key, version)) is api.is_flexible(version)


@every_api
def test_the_table_has_keys_and_names_of_kafka(api):
    schema = request_schema(api.key, api.low)
    assert (schema.__api_key__, schema.__name__) == (api.key, f"{api.name}Request")
    assert api.low <= api.high
    assert api.flexible == NEVER or api.flexible <= api.high
    assert [v for v in range(-1, api.high + 2) if api.offers(v)] == [*range(api.low, api.high + 1)]


# --- Requests ---


@every_api
def test_requests_are_read_as_they_were_written(api):
    for version in versions_of(api):
        for message in some_requests(api, version):
            data = header_bytes(api, version, 7, "a client") + written(message)
            header = read_header(data, api, version)
            assert header[:4] == (api, version, 7, "a client")
            assert codec.decode(header, data) == message


@every_api
def test_a_request_that_is_cut_off_anywhere_is_refused(api):
    for version in versions_of(api):
        for message in some_requests(api, version):
            data = written(message)
            for end in range(0, len(data), 1 + len(data) // 40):
                with pytest.raises(Undecodable):
                    codec.decode(header_of(api, version), data[:end])


@every_api
def test_a_request_with_a_wrong_byte_is_read_or_refused(api):
    for version in versions_of(api):
        chance = random.Random(f"{version} {api.name}")
        for message in some_requests(api, version):
            data = bytearray(written(message))
            for _ in range(12 if data else 0):
                changed = bytes(data[: (at := chance.randrange(len(data)))]) + chance.choice(
                    (b"\xff", b"\x7f", b"\x80", b"\0", b"\xff\xff\xff\x7f", b"\x7f\xff\xff\xff")
                )
                changed += data[len(changed) :]
                try:
                    codec.decode(header_of(api, version), changed)
                except Undecodable:
                    assert at >= 0


@every_api
def test_a_null_is_refused_where_the_schema_has_none(api):
    for version in versions_of(api):
        for field in fields_of(request_schema(api.key, version)):
            if field.is_nullable or not field.is_array:
                continue
            # Everything before the array at its emptiest, then null, then enough of anything.
            empty = written(made(request_schema(api.key, version), {}))
            null = b"\0" if api.is_flexible(version) else b"\xff\xff\xff\xff"
            is_first = fields_of(request_schema(api.key, version))[0] is field
            if is_first:
                with pytest.raises(Undecodable, match="null"):
                    codec.decode(header_of(api, version), null + empty)


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_000, 5])
def test_an_array_cannot_claim_more_than_its_frame_holds(count):
    # kio would make room for all of them: 34 GB for the first, and the process is aborted.
    plain = b"\0\1g" + struct.pack(">ih", 1, 0) + struct.pack(">q", -1) + struct.pack(">i", count)
    with pytest.raises(Undecodable, match="longer than the frame"):
        codec.decode(header_of(apis.OFFSET_COMMIT, 2), plain + b"\0" * 3)
    compact = bytearray()
    rest = count + 1
    while rest >= 0x80:
        compact.append(rest & 0x7F | 0x80)
        rest >>= 7
    compact.append(rest)
    flexible = b"\x02g" + struct.pack(">i", 1) + b"\x01\0" + compact + b"\1\1\1"
    with pytest.raises(Undecodable):
        codec.decode(header_of(apis.OFFSET_COMMIT, 8), flexible)


def test_items_are_counted_before_they_are_read():
    topics = [{"name": "t", "partition_indexes": range(30)}] * 3
    data = request(apis.OFFSET_FETCH, 5, group_id="g", topics=topics)
    header = read_header(data, apis.OFFSET_FETCH, 5)
    assert len(codec.decode(header, data, most_items=93).topics) == 3
    with pytest.raises(Undecodable, match="too many items"):
        codec.decode(header, data, most_items=92)


@pytest.mark.parametrize("retention_ms", [2**63 - 1, -(2**63), 2**53, -1, 0])
@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_retention_time_of_any_length_is_read(version, retention_ms):
    data = b"\0\1g" + struct.pack(">ihqi", 3, 0, retention_ms, 0)
    body = codec.decode(header_of(apis.OFFSET_COMMIT, version), data)
    assert (body.group_id, body.generation_id_or_member_epoch, body.topics) == ("g", 3, ())


def test_unknown_tagged_fields_are_skipped():
    data = request(apis.LIST_GROUPS, 5, states_filter=["Stable"])
    assert data.endswith(b"\0")
    tagged = data[:-1] + b"\x02\x05\x03abc\xff\x01\x00"
    header = read_header(tagged, apis.LIST_GROUPS, 5)
    assert codec.decode(header, tagged).states_filter == ("Stable",)
    with pytest.raises(Undecodable):
        codec.decode(header, tagged[:-2])
    with pytest.raises(Undecodable):
        codec.decode(header, data[:-1] + b"\xff\xff\xff\xff\x0f")
    # A field that is left out ends before the request does.
    with pytest.raises(Undecodable):
        codec.decode(header, data[:-1] + b"\x01\x05\x7fabc")


# --- Answers ---


@every_api
def test_answers_are_written_as_kio_writes_them(api):
    for version in versions_of(api):
        chance = random.Random(f"{api.name} {version} answer")
        for _ in range(ROUNDS):
            message = anything(response_schema(api.key, version), chance)
            data = encoded(header_of(api, version), values_of(message))
            assert data[:4] == struct.pack(">i", len(data) - 4)
            assert answer(api, version, data[4:]) == (7, message)
            assert data.endswith(written(message))


@every_api
def test_an_answer_that_says_nothing_has_the_defaults_of_kafka(api):
    for version in versions_of(api):
        data = encoded(header_of(api, version), {})
        _, message = answer(api, version, data[4:])
        assert message == made(response_schema(api.key, version), {})


def test_answers_to_api_versions_have_a_plain_header_in_every_version():
    for version in range(API_VERSIONS.high + 1):
        data = encoded(header_of(API_VERSIONS, version), {"error_code": 35})
        assert data[4:10] == struct.pack(">ih", 7, 35)


def test_long_answers_are_written_in_slices():
    groups = [{"group_id": f"g{number}"} for number in range(codec.AT_ONCE * 3)]
    work = codec.encode(header_of(apis.LIST_GROUPS, 4), {"groups": groups})
    assert sum(1 for _ in work) == 3


def test_a_text_that_a_version_has_no_room_for_is_an_error_of_its_own():
    values = {"groups": [{"group_id": "g" * (codec.LONGEST_TEXT + 1)}]}
    with pytest.raises(codec.Unsayable):
        encoded(header_of(apis.LIST_GROUPS, 2), values)
    assert answer(apis.LIST_GROUPS, 3, encoded(header_of(apis.LIST_GROUPS, 3), values)[4:])


# --- Golden frames ---

GOLDEN = {
    # A dynamic member, as librdkafka sends it; its subscription is shortened.
    "JoinGroup 5": (
        """000b 0005 00000009 0007 72646b61666b61  0002 6731  0000afc8 000493e0  0000 ffff
        0008 636f6e73756d6572  00000001  0005 72616e6765  00000003 000100""",
        {
            "group_id": "g1",
            "session_timeout": 45_000,
            "rebalance_timeout": 300_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\0\1\0"}],
        },
    ),
    # Flexible: compact lengths, and tagged fields after header, partition, topic and body.
    "OffsetCommit 9": (
        """0008 0009 00000009 0007 72646b61666b61 00  03 6731  00000004  02 6d  00
        02  02 74  02  00000002 000000000000002a ffffffff 00 00  00  00""",
        {
            "group_id": "g1",
            "generation_id_or_member_epoch": 4,
            "member_id": "m",
            "topics": [
                {
                    "name": "t",
                    "partitions": [
                        {"partition_index": 2, "committed_offset": 42, "committed_metadata": None}
                    ],
                }
            ],
        },
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_requests(name):
    text, values = GOLDEN[name]
    data = bytes.fromhex(text)
    key, version = struct.unpack_from(">hh", data)
    api = APIS[key]
    header = read_header(data, api, version)
    assert (f"{api.name} {version}", *header[2:4]) == (name, 9, "rdkafka")
    assert codec.decode(header, data) == made(request_schema(key, version), values)
    assert request(api, version, 9, "rdkafka", **values) == data


def test_golden_answers():
    join = {"error_code": 79, "protocol_name": "", "member_id": "m-1"}
    assert encoded(header_of(apis.JOIN_GROUP, 4), join) == bytes.fromhex(
        "0000001b 00000007  00000000 004f ffffffff 0000 0000 0003 6d2d31 00000000"
    )
    listed = {"groups": [{"group_id": "g", "protocol_type": "consumer", "group_state": "Stable"}]}
    assert encoded(header_of(apis.LIST_GROUPS, 4), listed) == bytes.fromhex(
        "00000020 00000007 00  00000000 0000  02  02 67  09 636f6e73756d6572  07 537461626c65 00 00"
    )
