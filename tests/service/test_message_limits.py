"""Every repeated field and every text of every request has a limit, found before it costs much."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.ids import CallId
from coordinator.runtime.slices import at_once
from coordinator.service.bounds import Elsewhere, Items, Text
from coordinator.service.grpc import wire_counts
from coordinator.service.grpc.message_limits import OTHERS, MessageLimits, limits_of
from coordinator.service.grpc.serialized import varint
from coordinator.service.grpc.translate import commands_of, sessions
from coordinator.service.refusals import VIOLATIONS_MAX, Malformed
from coordinator.settings.sections import LimitsConfig
from coordinator.v1 import (
    admin_pb2,
    cluster_pb2,
    group_pb2,
    limits_pb2,
    replica_pb2,
    session_pb2,
    topics_pb2,
)
from coordinator.v1 import group_pb2 as pb
from tests.fuzz.messages import messages

FILES = (
    group_pb2, admin_pb2, cluster_pb2, replica_pb2, session_pb2, topics_pb2, health_pb2,
    reflection_pb2,
)  # fmt: skip
REQUESTS = {
    method.input_type.full_name: method.input_type
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
SMALL = LimitsConfig(max_partitions_per_call=7, max_members_per_call=6, max_groups_per_call=5)
FOUR_MIB = 4 * 1024 * 1024


def fields_of(kind, path=()):
    """Every field of a message and of those inside, with the way to it."""
    for field in kind.fields:
        yield (*path, field)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            yield from fields_of(field.message_type, (*path, field))


WAYS = {
    f"{name}:{'.'.join(field.name for field in way)}": (kind, way)
    for name, kind in REQUESTS.items()
    for way in fields_of(kind)
}
REPEATED = {name: found for name, found in WAYS.items() if found[1][-1].is_repeated}
LONG = {
    name: (kind, way, limit.most)
    for name, (kind, way) in WAYS.items()
    if way[-1].type in TEXTS
    for limit in limits_of(way[-1])
    if isinstance(limit, Text)
}
OF_NO_GROUP = {
    "coordinator.v1.FindCoordinatorRequest",
    "coordinator.v1.TellLogEndsRequest",
    "coordinator.v1.WatchRebalancesRequest",
}
"""Requests without commands: tests/integration/hostile/test_message_limits.py sends them."""


def is_limited(field) -> bool:
    """True if a field needs a limit."""
    return field.is_repeated or field.type in TEXTS


def message_with(kind, way, fill):
    """A message in which the last field of the way is set by `fill(owner, field)`."""
    message = owner = message_factory.GetMessageClass(kind)()
    for field in way[:-1]:
        inside = getattr(owner, field.name)
        owner = inside.add() if field.is_repeated else inside
    fill(owner, way[-1])
    return message


def with_items(kind, way, count):
    def fill(owner, field):
        container = getattr(owner, field.name)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for _ in range(count):
                container.add()
        else:
            container.extend([""] * count if field.type in TEXTS else [1] * count)

    return message_with(kind, way, fill)


def with_text(kind, way, text):
    def fill(owner, field):
        if field.is_repeated:
            getattr(owner, field.name).append(text)
        else:
            setattr(owner, field.name, text)

    return message_with(kind, way, fill)


def limit_of(field) -> int:
    """Items that a field of a message may have."""
    return next(x for x in limits_of(field) if isinstance(x, Items)).within(SMALL)


def items_of(field: str, limits: MessageLimits) -> int:
    """Items that a repeated field may have."""
    kind, _, name = field.partition(".")
    plan = limits.plan(getattr(pb, kind).DESCRIPTOR)
    return next(each.most for each in plan.repeated if each.name == name)


def check(message) -> None:
    """Hold a message to its limits, as the gRPC server and the pipeline do together."""
    limits = MessageLimits(SMALL)
    if wrong := limits.counts(message):
        raise Malformed(wrong)
    limits.check_texts(message)
    if isinstance(message, session_pb2.SessionRequest):
        for each in message.ack.partitions:
            each.kind = session_pb2.SessionAck.RELEASED
        if message.HasField("attach"):
            at_once(sessions.attach_of(message.attach, CallId(1), "", "/host"))
        else:
            at_once(sessions.said(message, CallId(1), "g", 1))
    elif message.DESCRIPTOR.file.package == "coordinator.v1":
        commands_of(message, itertools.count(1).__next__, "/host", SMALL)


def refused(message) -> Malformed:
    with pytest.raises(Malformed) as error:
        check(message)
    return error.value


def test_every_repeated_field_and_every_text_of_every_request_has_a_limit_and_none_is_left_over():
    used = set()
    for _, way in WAYS.values():
        field = way[-1]
        if not is_limited(field):
            continue
        is_ours = field.file.package == "coordinator.v1"
        told = field.GetOptions().Extensions[limits_pb2.limits] if is_ours else [field.name]
        used |= {*told}
        kinds = {type(limit) for limit in limits_of(field)}
        assert (Items in kinds) == field.is_repeated, field.full_name
        assert bool(kinds & {Text, Elsewhere}) == (field.type in TEXTS), field.full_name
    assert used == {*OTHERS, *limits_pb2.Limit.values()} - {limits_pb2.LIMIT_UNSPECIFIED}


@pytest.mark.parametrize("name", REPEATED)
def test_a_repeated_field_may_have_as_many_items_as_its_limit_and_not_one_more(name):
    kind, way = REPEATED[name]
    limits = MessageLimits(SMALL)
    most = limit_of(way[-1])
    assert not limits.counts(with_items(kind, way, most))
    (wrong,) = limits.counts(with_items(kind, way, most + 1))
    assert wrong.field == ".".join(field.name for field in way)
    assert str(most) in wrong.description


@pytest.mark.parametrize("name", REPEATED)
def test_items_are_counted_in_the_bytes_as_in_the_message(name):
    kind, way = REPEATED[name]
    limits = MessageLimits(SMALL)
    most = limit_of(way[-1])
    plan = limits.plan(kind)
    fits = with_items(kind, way, most).SerializeToString()
    assert wire_counts.excess(fits, plan) is None
    # Packed numbers are known to be too many only where they are surely.
    factor = wire_counts.PACKED_BYTES if way[-1].is_packed else 1
    found = wire_counts.excess(with_items(kind, way, (most + 1) * factor).SerializeToString(), plan)
    assert found is not None
    assert found.field == ".".join(field.name for field in way)


@pytest.mark.parametrize("name", [name for name in LONG if name.split(":")[0] not in OF_NO_GROUP])
def test_a_text_may_be_as_long_as_its_limit_and_is_not_told_again(name):
    kind, way, most = LONG[name]
    letter = "é" if way[-1].type == FieldDescriptor.TYPE_STRING else b"x"
    check(with_text(kind, way, letter * most))
    error = refused(with_text(kind, way, letter * (most + 1)))
    (violation,) = error.violations
    assert violation.field.replace("[0]", "") == ".".join(field.name for field in way)
    assert "é" not in str(error)
    assert len(str(error)) < 200


def test_packed_numbers_that_are_none_are_not_walked_through():
    topic = b"\x12\0" * (FOUR_MIB // 2)
    counted = Counted(b"\x12" + varint(len(topic)) + topic)
    plan = MessageLimits(SMALL).plan(pb.OffsetFetchRequest.DESCRIPTOR)
    assert wire_counts.excess(counted, plan) is not None
    assert counted.looks < 1_000


def test_what_is_inside_of_several_is_counted_together():
    limits = MessageLimits(SMALL)
    topics = [{"name": f"{n}", "partitions": [{}, {}, {}, {}]} for n in range(2)]
    request = pb.OffsetCommitRequest(topics=topics)
    assert [v.field for v in limits.counts(request)] == ["topics.partitions"]
    found = wire_counts.excess(request.SerializeToString(), limits.plan(request.DESCRIPTOR))
    assert found.field == "topics.partitions"


class Counted(bytes):
    """Bytes that count how often one of them is looked at."""

    looks = 0

    def __getitem__(self, index):
        self.looks += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.parametrize("item", [b"", b"\0\0\0\0"])
def test_the_cost_of_refusing_is_bounded_by_the_limit_and_not_by_the_message(name, item):
    kind, way = REPEATED[name]
    data = b""
    for field in reversed(way):
        tag = bytes([field.number << 3 | 2])
        if field is way[-1]:
            data = (tag + bytes([len(item)]) + item) * (FOUR_MIB // (2 + len(item)))
            if field.is_packed:
                data = tag + varint(FOUR_MIB) + b"\1" * FOUR_MIB
        else:
            data = tag + varint(len(data)) + data
    limits = MessageLimits(SMALL)
    counted = Counted(data)
    assert wire_counts.excess(counted, limits.plan(kind)) is not None
    assert counted.looks < max(1_000, 3 * limit_of(way[-1]))


@pytest.mark.parametrize("kind", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("field", [b"\x7a\0", b"\x78\1", b"\x08\1", b"\x7b\x7c", b"\xfa\x7f\0"])
def test_fields_that_nobody_knows_and_that_come_again_and_again_are_not_walked_through(kind, field):
    counted = Counted(field * 100_000)
    found = wire_counts.excess(counted, MessageLimits(SMALL).plan(kind))
    assert found is not None or kind.fields_by_number[1].is_repeated
    assert counted.looks < 5_000  # ElectLeaders may name 1,024 shards.


@given(st.one_of([messages(kind) for kind in REQUESTS.values()]))
def test_whatever_is_within_the_limits_is_so_in_the_bytes_too(message):
    limits = MessageLimits(SMALL)
    found = wire_counts.excess(message.SerializeToString(), limits.plan(message.DESCRIPTOR))
    assert found is None or limits.counts(message)


@given(st.binary(max_size=200), st.sampled_from(list(REQUESTS.values())))
def test_bytes_that_are_no_message_are_left_to_the_parser(data, kind):
    wire_counts.excess(data, MessageLimits(SMALL).plan(kind))


@given(st.one_of([messages(kind) for kind in REQUESTS.values()]))
def test_a_message_that_is_let_by_for_being_short_is_within_its_limits(message):
    limits = MessageLimits(SMALL)
    if message.ByteSize() <= limits.plan(message.DESCRIPTOR).free_bytes:
        assert not limits.counts(message)


def test_a_setting_raises_its_limit():
    assert items_of("OffsetCommitRequest.topics", MessageLimits(LimitsConfig())) == 10_000
    assert items_of("OffsetCommitRequest.topics", MessageLimits(SMALL)) == 7
    settings = {
        limit.setting: limit.most
        for _, way in REPEATED.values()
        for limit in limits_of(way[-1])
        if isinstance(limit, Items) and limit.setting
    }
    for name, most in settings.items():
        assert getattr(LimitsConfig(), name) == most
        assert MessageLimits(replace(SMALL, **{name: 3}))


def test_so_many_violations_are_told_as_fit_into_the_metadata_of_an_answer():
    request = pb.OffsetCommitRequest(topics=[{"name": "t" * 250} for _ in range(1_000)])
    with pytest.raises(Malformed) as refused:
        commands_of(request, itertools.count(1).__next__, "/host")
    error = refused.value
    assert len(error.violations) == VIOLATIONS_MAX
    assert "980 more" in str(error)
    assert len(str(error)) < 4_096


def test_items_of_a_part_end_where_it_ends():
    """The next field of the message may have the tag of the part's items."""
    limits = MessageLimits(SMALL)
    ack = session_pb2.SessionAck(partitions=[{}])
    attach = session_pb2.Attach(topics=[{}] * (SMALL.max_partitions_per_call + 1))
    data = session_pb2.SessionRequest(ack=ack).SerializeToString()
    data += session_pb2.SessionRequest(attach=attach).SerializeToString()
    found = wire_counts.excess(data, limits.plan(session_pb2.SessionRequest.DESCRIPTOR))
    assert found is not None
    assert found.field == "attach.topics"
