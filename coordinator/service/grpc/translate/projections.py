"""Projections of the core's values to messages, by the names of their fields.

`_NAMES` has the fields that are called otherwise in the contract, `_DIFFERS` what is more than a
name. Both count wherever the message has no field of the value's own name.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from google.protobuf.message import Message

from coordinator.core.values import replies as r
from coordinator.core.values.events import RefusedJoin
from coordinator.core.values.plan_journal import PlanRecord
from coordinator.core.values.rebalance_journal import RebalanceRecord
from coordinator.core.values.records import SessionMemberStored
from coordinator.core.values.session_messages import Standing
from coordinator.runtime.field_mapping import Differs, Exceptions, Mappings, WriteFields
from coordinator.v1 import session_pb2

Kind = TypeVar("Kind", bound=Message)

_NAMES = {
    "error": "error_code",
    "message": "error_message",
    "instance_id": "group_instance_id",
    "generation": "generation_id",
    "state": "group_state",
    "partition": "partition_index",
    "offset": "committed_offset",
    "leader_epoch": "committed_leader_epoch",
    "protocol_name": "protocol_data",
    "name": "member_name",
    "partitions": "partition_count",
    "source": "from_member_id",
    "target": "to_member_id",
    **{f"is_{name}": name for name in ("suspect", "ready", "overloaded", "stalled")},
}
_STANDINGS = {
    Standing.MEMBER: session_pb2.Attached.MEMBER,
    Standing.WAITING: session_pb2.Attached.WAITING,
}
_DIFFERS: Exceptions = {
    r.GroupListing: {"group_type": Differs(encode=str.capitalize)},
    r.DescribeReply: {"group_type": Differs(encode=str.capitalize)},
    r.DescribedMember: {
        "metadata": Differs("member_metadata"),
        "assignment": Differs("member_assignment"),
    },
    r.CommitResult: {
        "holder_id": Differs("holder_member_id"),
        "holder_name": Differs("holder_member_name"),
    },
    r.LogEnd: {"offset": Differs("log_end_offset"), "begin": Differs("log_begin_offset")},
    RefusedJoin: {"needed": Differs("needed_protocols")},
    RebalanceRecord: {
        "members": Differs("participants"),
        "member_count": Differs("members"),
    },
    PlanRecord: {
        "called_at_ms": Differs("started_at_ms"),
        "made_at_ms": Differs("ended_at_ms"),
        "left_out": Differs("partitions_left_out"),
    },
    SessionMemberStored: {"leaves": Differs("leaving")},
    r.SessionMemberState: {"standing": Differs(encode=_STANDINGS.__getitem__)},
    r.HandoffRow: {
        "source": Differs("source_member_id"),
        "successor": Differs("successor_member_id"),
        "deadline_ms": Differs("phase_ends_ms"),
    },
    r.SessionGroupReply: {
        "is_policy_stored": Differs("policy_set"),
        "planned_at_ms": Differs("last_plan_ms"),
        "plan_due_ms": Differs("next_plan_ms"),
    },
}
_PROJECTIONS = Mappings(_DIFFERS, names=_NAMES)


def projection(kind: type, message: Any, *but: str) -> WriteFields:
    """The projection of a value to what a message's constructor takes.

    Args:
        message: descriptor of the messages.
        but: fields of the value that are left out.
    """
    return _projection(kind, message, but)


@cache
def _projection(kind: Any, message: Any, but: tuple[str, ...]) -> WriteFields:
    return _PROJECTIONS.projection(kind, message, *but)


def message_of(kind: type[Kind], value: Any, *but: str, **more: Any) -> Kind:
    """A message about a value, and more fields of it.

    Args:
        but: fields of the value that are left out.
    """
    return kind(**{**projection(type(value), kind.DESCRIPTOR, *but)(value), **more})
