"""Heartbeats by hand, against kio in every version."""

from __future__ import annotations

import random

import pytest

from coordinator.kafka import codec
from coordinator.kafka.apis import HEARTBEAT
from coordinator.kafka.errors import Undecodable
from coordinator.kafka.headers import read_header
from coordinator.kafka.heartbeats import answer_beat, read_beat
from coordinator.runtime.slices import at_once
from tests.kit.kafka.messages import answer, request

VERSIONS = range(HEARTBEAT.low, HEARTBEAT.high + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)
TEXTS = ["", "g", "orders", "\u20ac" * 60, "x" * 126, "x" * 127, "x" * 300]


def beats(version):
    chance = random.Random(version)
    for text in TEXTS:
        for member_id in TEXTS:
            instance_id = chance.choice([None, *TEXTS])
            client_id = chance.choice([None, *TEXTS])
            generation = chance.choice([-1, 0, 5, 2**31 - 1])
            data = request(
                HEARTBEAT,
                version,
                chance.getrandbits(31),
                client_id,
                group_id=text,
                member_id=member_id,
                generation_id=generation,
                group_instance_id=instance_id,
            )
            yield data, (text, member_id, instance_id if version >= 3 else None, generation)


@every_version
def test_beats_are_read_as_kio_writes_them(version):
    for data, expected in beats(version):
        assert read_beat(data, version) == expected


@every_version
def test_tagged_fields_are_skipped_where_there_are_any(version):
    for data, expected in beats(version):
        if version >= HEARTBEAT.flexible:
            assert read_beat(data[:-1] + b"\1\7\2ab", version) == expected
            end = read_header(data, HEARTBEAT, version).end
            assert read_beat(data[: end - 1] + b"\1\0\0" + data[end:], version) == expected


@every_version
def test_a_beat_that_is_cut_off_anywhere_is_refused(version):
    for data, _ in list(beats(version))[::5]:
        for end in range(8, len(data)):
            with pytest.raises(Undecodable):
                read_beat(data[:end], version)


@every_version
def test_what_is_read_by_hand_the_library_reads_alike(version):
    # Also where a byte of the body is wrong: either both read the same, or both refuse.
    chance = random.Random(version)
    for data, _ in beats(version):
        for _ in range(5):
            changed = bytearray(data)
            begin = read_header(data, HEARTBEAT, version).end
            changed[chance.randrange(begin, len(data))] = chance.getrandbits(8)
            assert by_hand(bytes(changed), version) == by_library(bytes(changed), version)


def by_hand(data, version):
    try:
        return read_beat(data, version)
    except Undecodable:
        return None


def by_library(data, version):
    try:
        body = codec.decode(read_header(data, HEARTBEAT, version), data)
    except Undecodable:
        return None
    instance_id = getattr(body, "group_instance_id", None)
    return body.group_id, body.member_id, instance_id, body.generation_id


@every_version
@pytest.mark.parametrize("code", [0, 27, -1])
@pytest.mark.parametrize("correlation_id", [0, -7, 2**31 - 1])
def test_answers_are_those_of_the_codec(version, code, correlation_id):
    data = request(HEARTBEAT, version, correlation_id, group_id="g", member_id="m")
    found = answer_beat(data, version, code)
    header = read_header(data, HEARTBEAT, version)
    assert found == at_once(codec.encode(header, {"error_code": code}))
    assert answer(HEARTBEAT, version, found[4:])[0] == correlation_id
