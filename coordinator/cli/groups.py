"""`coordinator groups`: the columns and words of Kafka's own tool."""

from __future__ import annotations

import json
import sys

import grpc

from coordinator.assignors.consumer_protocol import ConsumerProtocolError, decode_assignment
from coordinator.client.admin import GroupAdmin

FAILED = 1
ABSENT = "-"
Row = dict[str, str]


def show(action: str, group: str | None, bootstrap: str, output: str) -> int:
    """Print groups, or one group's members or offsets; the exit status."""
    try:
        with GroupAdmin(bootstrap) as admin:
            rows = _list(admin) if group is None else _ACTIONS[action](admin, group)
    except grpc.RpcError as error:
        print(f"coordinator: no answer from {bootstrap}: {error.details()}", file=sys.stderr)
        return FAILED
    except LookupError as error:
        print(f"coordinator: {error.args[0]}", file=sys.stderr)
        return FAILED
    print(json.dumps(rows, indent=2) if output == "json" else _table(rows))
    return 0


def _list(admin: GroupAdmin) -> list[Row]:
    return [
        {
            "GROUP": g.group_id,
            "TYPE": g.group_type,
            "PROTOCOL": g.protocol_type,
            "STATE": g.group_state,
        }
        for g in admin.list_groups()
    ]


def _describe(admin: GroupAdmin, group: str) -> list[Row]:
    """Each partition that has an owner or an offset, as `kafka-consumer-groups --describe` does."""
    described = admin.describe_group(group)
    offsets = admin.offsets(group)
    if described.group_state == "Dead":
        raise LookupError(f"Consumer group '{group}' does not exist.")
    rows = {}
    for member in described.members:
        try:
            owned = decode_assignment(member.member_assignment).partitions
        except ConsumerProtocolError:
            owned = ()  # Not of type consumer: what it holds cannot be read.
        for partition in owned:
            rows[partition] = (member.member_id, member.client_host, member.client_id)
    keys = sorted(rows.keys() | offsets.keys())
    return [
        {
            "GROUP": group,
            "TOPIC": key.topic,
            "PARTITION": str(key.partition),
            "CURRENT-OFFSET": str(offsets[key]) if key in offsets else ABSENT,
            "CONSUMER-ID": rows.get(key, (ABSENT,) * 3)[0],
            "HOST": rows.get(key, (ABSENT,) * 3)[1],
            "CLIENT-ID": rows.get(key, (ABSENT,) * 3)[2],
        }
        for key in keys
    ]


def _members(admin: GroupAdmin, group: str) -> list[Row]:
    described = admin.describe_group(group)
    if described.group_state == "Dead":
        raise LookupError(f"Consumer group '{group}' does not exist.")
    return [
        {
            "GROUP": group,
            "CONSUMER-ID": member.member_id,
            "GROUP-INSTANCE-ID": member.group_instance_id or ABSENT,
            "HOST": member.client_host,
            "CLIENT-ID": member.client_id,
        }
        for member in described.members
    ]


def _offsets(admin: GroupAdmin, group: str) -> list[Row]:
    return [
        {"GROUP": group, "TOPIC": k.topic, "PARTITION": str(k.partition), "CURRENT-OFFSET": str(n)}
        for k, n in sorted(admin.offsets(group).items())
    ]


_ACTIONS = {"describe": _describe, "members": _members, "offsets": _offsets}


def _table(rows: list[Row]) -> str:
    if not rows:
        return ""
    columns = list(rows[0])
    widths = {c: max(len(c), *(len(row[c]) for row in rows)) for c in columns}
    lines = [{c: c for c in columns}, *rows]
    return "\n".join("  ".join(f"{row[c]:{widths[c]}}" for c in columns).rstrip() for row in lines)
