"""Every repeated field and every text of every request of the contract has a limit."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.values.ids import CallId
from coordinator.runtime.slices import at_once
from coordinator.service.grpc.translate import commands_of, sessions
from coordinator.service.refusals import VIOLATIONS_MAX, Malformed
from coordinator.service.validation.messages import MessageLimits, limits_of
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
from tests.campaigns.fuzz.messages import messages

FILES = (group_pb2, admin_pb2, cluster_pb2, replica_pb2, session_pb2, topics_pb2)
REQUESTS = {
    method.input_type.full_name: method.input_type
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
SMALL = LimitsConfig(max_partitions_per_call=7, max_members_per_call=6, max_groups_per_call=5)


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
    name: (kind, way, limit.characters)
    for name, (kind, way) in WAYS.items()
    if way[-1].type in TEXTS
    for limit in limits_of(way[-1])
    if limit.characters and not limit.beyond
}
OF_NO_GROUP = {
    "coordinator.v1.FindCoordinatorRequest",
    "coordinator.v1.FetchLogEndsRequest",
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
    return next(one for one in limits_of(field) if one.items).items_by(SMALL)


def items_of(field: str, limits: MessageLimits) -> int:
    """Items that a repeated field may have."""
    kind, _, name = field.partition(".")
    plan = limits.plan(getattr(pb, kind).DESCRIPTOR)
    return next(each.most for each in plan.repeated if each.name == name)


def check(message) -> None:
    """Hold a message to its limits, as the gRPC server and the pipeline do together."""
    if wrong := MessageLimits(SMALL).counts(message):
        raise Malformed(wrong)
    if isinstance(message, session_pb2.SessionRequest):
        for partition in message.ack.partitions:
            partition.kind = session_pb2.SessionAck.RELEASED
        if message.HasField("attach"):
            at_once(sessions.attach_of(message.attach, CallId(1), "", "/host"))
        else:
            at_once(sessions.inputs_of(message, CallId(1), "g", 1))
    else:
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
        used |= {*field.GetOptions().Extensions[limits_pb2.limits]}
        of_items = [bool(limit.items) for limit in limits_of(field)]
        assert (True in of_items) == field.is_repeated, field.full_name
        assert (False in of_items) == (field.type in TEXTS), field.full_name
    assert used == {*limits_pb2.Limit.values()} - {limits_pb2.LIMIT_UNSPECIFIED}


@pytest.mark.parametrize("name", REPEATED)
def test_a_repeated_field_may_have_as_many_items_as_its_limit_and_not_one_more(name):
    kind, way = REPEATED[name]
    limits = MessageLimits(SMALL)
    most = limit_of(way[-1])
    assert not limits.counts(with_items(kind, way, most))
    (wrong,) = limits.counts(with_items(kind, way, most + 1))
    assert wrong.field == ".".join(field.name for field in way)
    assert str(most) in wrong.description


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


def test_what_is_inside_of_several_is_counted_together():
    limits = MessageLimits(SMALL)
    topics = [{"name": f"{n}", "partitions": [{}, {}, {}, {}]} for n in range(2)]
    request = pb.OffsetCommitRequest(topics=topics)
    assert [v.field for v in limits.counts(request)] == ["topics.partitions"]


@given(st.one_of([messages(kind) for kind in REQUESTS.values()]))
def test_a_message_that_is_let_by_for_being_short_is_within_its_limits(message):
    limits = MessageLimits(SMALL)
    if message.ByteSize() <= limits.plan(message.DESCRIPTOR).free_bytes:
        assert not limits.counts(message)


def test_a_setting_raises_its_limit():
    assert items_of("OffsetCommitRequest.topics", MessageLimits(LimitsConfig())) == 10_000
    assert items_of("OffsetCommitRequest.topics", MessageLimits(SMALL)) == 7
    settings = {
        limit.setting: limit.items
        for _, way in REPEATED.values()
        for limit in limits_of(way[-1])
        if limit.items and limit.setting
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
