"""Validation of messages of session members, before they become commands.

Each finds the fields that no state of a group could make valid, a part of a message at a time.
Counts of items are checked by `messages`; what depends on the group is the core's to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from coordinator.core import limits
from coordinator.core.limits import Limit
from coordinator.runtime.slices import PART, Work, at_once
from coordinator.service.refusals import Malformed, Violation
from coordinator.service.validation.commands import Parts
from coordinator.v1 import session_pb2 as pb

MAX_HELD = limits.HELD.items
"""Partitions that a message may name in ranges: as many as a group may have."""


def check_attach(attach: pb.Attach) -> Work[None]:
    """Check an Attach.

    Raises:
        Malformed: with the limits.
    """
    return _refuse(_of_attach(attach))


def check_heartbeat(beat: pb.SessionHeartbeat) -> Work[None]:
    """Check a heartbeat.

    Raises:
        Malformed: with the limits.
    """
    if beat.HasField("held") or beat.loads or beat.log_ends:
        yield from _refuse(_of_heartbeat(beat))


def check_ack(ack: pb.SessionAck) -> Work[None]:
    """Check an acknowledgement of orders.

    Raises:
        Malformed: with the limits.
    """
    return _refuse(_of_ack(ack))


def check_leave(leave: pb.SessionLeave) -> None:
    """Check a leave.

    Raises:
        Malformed: with the limits.
    """
    at_once(_refuse(_of_leave(leave)))


def check_policy(policy: pb.GroupPolicy) -> None:
    """Check the policy that an operator sets.

    Raises:
        Malformed: with the limits.
    """
    at_once(_refuse(_of_policy("policy", policy)))


# --- Inside ---


def _refuse(parts: Parts) -> Work[None]:
    wrong = []
    for number, violation in enumerate(parts, 1):
        if violation is not None:
            wrong.append(violation)
        if not number % PART:
            yield
    if wrong:
        raise Malformed(wrong)


def _of_attach(attach: pb.Attach) -> Parts:
    for field, value, text in (
        ("group_id", attach.group_id, limits.GROUP_ID),
        ("member_name", attach.member_name, limits.INSTANCE_ID),
        ("session_id", attach.session_id, limits.MEMBER_ID),
        ("client_id", attach.client_id, limits.CLIENT_ID),
        ("rack", attach.rack, limits.LABEL),
        ("revision", attach.revision, limits.LABEL),
        ("deployment", attach.deployment, limits.LABEL),
    ):
        yield from _text(f"attach.{field}", value, text)
    if len(attach.incarnation.id) > limits.INCARNATION.characters:
        yield Violation("attach.incarnation.id", limits.INCARNATION.words())
    for number, topic in enumerate(attach.topics):
        yield from _text(f"attach.topics[{number}].name", topic.name, limits.TOPIC)
        if not topic.name:
            yield Violation(f"attach.topics[{number}].name", "must not be empty")
    for field, is_set, least in (
        ("stream_number", attach.stream_number, 0),
        ("max_partitions", attach.max_partitions, 0),
        ("drain_ms", attach.drain_ms, 0),
        ("coordinator_epoch", attach.coordinator_epoch, 0),
    ):
        if is_set < least:
            yield Violation(f"attach.{field}", "must not be negative")
    if attach.HasField("wishes"):
        yield from _of_policy("attach.wishes", attach.wishes)
    yield from _held("attach.held", attach.held)


def _of_policy(field: str, policy: pb.GroupPolicy) -> Parts:
    if policy.mode not in pb.GroupPolicy.Mode.values():
        yield Violation(f"{field}.mode", "is unknown")
    if policy.on_stall not in pb.GroupPolicy.OnStall.values():
        yield Violation(f"{field}.on_stall", "is unknown")


def _of_heartbeat(beat: pb.SessionHeartbeat) -> Parts:
    yield from _held("heartbeat.held.topics", beat.held.topics)
    for number, load in enumerate(beat.loads):
        field = f"heartbeat.loads[{number}]"
        yield from _partition_path(field, load.topic, load.partition)
        if not math.isfinite(load.weight) or load.weight < 0:
            yield Violation(f"{field}.weight", "must be 0 or more, and finite")
    for number, end in enumerate(beat.log_ends):
        yield from _partition_path(f"heartbeat.log_ends[{number}]", end.topic, end.partition)


def _of_ack(ack: pb.SessionAck) -> Parts:
    for number, partition in enumerate(ack.partitions):
        field = f"ack.partitions[{number}]"
        yield from _partition_path(field, partition.topic, partition.partition)
        if partition.kind not in (
            pb.SessionAck.RELEASED,
            pb.SessionAck.READY,
            pb.SessionAck.REFUSED,
        ):
            yield Violation(f"{field}.kind", "is unknown")


def _of_leave(leave: pb.SessionLeave) -> Parts:
    if leave.kind not in pb.SessionLeave.Kind.values():
        yield Violation("leave.kind", "is unknown")
    if leave.within_ms < 0:
        yield Violation("leave.within_ms", "must not be negative")


def _held(field: str, topics: Iterable[pb.HeldTopic]) -> Parts:
    """Check the ranges of a held set: a short one can name 2**31 partitions."""
    total = 0
    for t, topic in enumerate(topics):
        yield from _text(f"{field}[{t}].name", topic.name, limits.TOPIC)
        for r, span in enumerate(topic.partitions):
            if span.first < 0 or span.last < span.first or span.first_token < 0:
                yield Violation(f"{field}[{t}].partitions[{r}]", "is no range of partitions")
            else:
                total += span.last - span.first + 1
                yield None
    if total > MAX_HELD:
        yield Violation(field, f"names more than {MAX_HELD} partitions")


def _partition_path(field: str, topic: str, partition: int) -> Parts:
    yield from _text(f"{field}.topic", topic, limits.TOPIC)
    if partition < 0:
        yield Violation(f"{field}.partition", "must not be negative")


def _text(field: str, value: str, limit: Limit) -> Parts:
    if len(value) > limit.characters:
        yield Violation(field, limit.words())
    elif "\0" in value:
        yield Violation(field, "must not contain NUL")
    else:
        yield None
