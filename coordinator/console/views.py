"""Content of the console's page, as values for JSON."""

from __future__ import annotations

from typing import Any

from coordinator.assignors import TopicPartition
from coordinator.assignors.consumer_protocol import partitions_in
from coordinator.client.admin import GroupAdmin

View = dict[str, Any]  # Any: JSON.

GROUPS_MAX = 200
"""Groups on a page: nobody reads more, and the page is refreshed every two seconds."""


def groups(admin: GroupAdmin, contains: str) -> View:
    """Return the first groups of all nodes whose id contains a text, and their total number."""
    found, matching = admin.find_groups(contains, limit=GROUPS_MAX)
    return {
        "groups": [
            {
                "group": g.group_id,
                "state": g.group_state,
                "members": g.member_count,
                "protocolType": g.protocol_type,
            }
            for g in found
        ],
        "matching": matching,
    }


def group(admin: GroupAdmin, group_id: str) -> View:
    """Return a group: its members, partitions with owner, offset and lag, and awaited members.

    Raises:
        LookupError: there is no such group.
    """
    found = admin.existing_group(group_id)
    offsets, ends = admin.offsets(group_id), admin.log_ends(group_id)
    owners: dict[TopicPartition, str] = {}
    members = []
    for member in found.members:
        owned = partitions_in(member.member_assignment) or ()
        owners |= dict.fromkeys(owned, member.member_id)
        members.append(
            {
                "memberId": member.member_id,
                "clientId": member.client_id,
                "host": member.client_host.removeprefix("/"),
                "instanceId": member.group_instance_id,
                "partitions": len(owned),
                "isLeader": member.member_id == found.leader,
            }
        )
    partitions = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "offset": offsets.get(key),
            "end": ends.get(key),
            "lag": max(0, ends[key] - offsets.get(key, 0)) if key in ends else None,
            "owner": owners.get(key),
        }
        for key in sorted(owners.keys() | offsets.keys() | ends.keys())
    ]
    phase = admin.phase(group_id)
    return {
        "group": group_id,
        "state": found.group_state,
        "generation": found.generation_id,
        "protocol": found.protocol_data,
        "members": members,
        "partitions": partitions,
        "awaited": [{"memberId": m.member_id, "clientId": m.client_id} for m in phase.awaited],
        "since": phase.since_ms,
    }


def rebalances(admin: GroupAdmin, group_id: str) -> View:
    """Return the group's journal, newest first, and refused joins.

    Raises:
        LookupError: there is no such group.
    """
    journal = admin.journal(group_id)
    return {
        "rebalances": [
            {
                "generation": r.generation_after,
                "cause": r.cause,
                "outcome": r.outcome,
                "startedAt": r.started_at_ms,
                "endedAt": r.ended_at_ms,
                "explanation": list(r.explanation),
            }
            for r in journal.rebalances
        ],
        "refused": [r.explanation for r in journal.refused_joins],
    }
