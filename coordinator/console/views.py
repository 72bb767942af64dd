"""Content of the console's pages, as values for JSON. A page of rows has at most `PAGE_ROWS`.

Offsets and lag are text: they have 64 bits, and a browser's numbers have 53.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from coordinator.assignors import TopicPartition
from coordinator.assignors.consumer_protocol import partitions_in
from coordinator.console.session_views import View, plan_line, session_view
from coordinator.dial import address_of
from coordinator.observe.journal_rows import explained
from coordinator.observe.rows import plain
from coordinator.observe.spelling import name_of, partitions_of, spell_between
from coordinator.operator.admin import GroupAdmin, GroupOrder, Rebalance, lag_of
from coordinator.operator.nodes import Nodes

Row = TypeVar("Row")

PAGE_ROWS = 50
"""Rows on a page: no more are sent, however large the node, since pages ask every two seconds."""
PAGES_MAX = 1_000_000
AWAITED_ROWS = 20
"""Awaited members that are shown, those first that were not heard for longest."""

CLASSIC, SESSION = "Classic", "Session"
STATES = {
    "rebalancing": ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"),
    "stable": ("Stable",),
    "empty": ("Empty",),
}
ORDERS: dict[str, GroupOrder] = {
    "state": "STATE",
    "members": "MEMBERS",
    "lag": "LAG",
    "rebalance": "LAST_REBALANCE",
}
"""Orders of the list of groups; others are by name."""


KNOWN_BY = {
    "last_seen": "it fell silent",
    "last_seen_interval_unknown": "it fell silent",
    "not_seen_since_take_over": "it was not heard of since a fail-over",
    "left": "it left",
    "removed": "it was removed",
    "rejoined": "it joined again",
    "gave_up": "it gave up by itself",
    "taken_away": "it gave them back",
    "no_coordinator": "the group had no coordinator",
    "silent": "it was not heard",
}
"""Words for `known_by`: what the former owner of partitions did when it stopped."""


def groups(admin: GroupAdmin, *, find: str, state: str, sort: str, page: int) -> View:
    """Return a page of the groups of all nodes, and the number of groups that match.

    Args:
        find: text that the group's id contains, ignoring case.
        state: a key of `STATES`, or the name of one state; empty: any.
        sort: a key of `ORDERS`; others sort by name.
        page: from 1 on.
    """
    skip = _skip(page)
    groups, matching = admin.find_groups(
        find,
        limit=PAGE_ROWS,
        skip=skip,
        order=ORDERS.get(sort, "GROUP_ID"),
        states=STATES.get(state, (state,) if state else ()),
    )
    return {
        "groups": [
            {
                "group_id": g.group_id,
                "state": g.group_state,
                "type": g.group_type or CLASSIC,
                "members": g.member_count,
                "protocol_type": g.protocol_type,
                "protocol": g.protocol_data,
                "lag": None if g.lag < 0 else str(g.lag),
                "last_rebalance_ms": g.last_rebalance_ms,
                "rebalancing_since_ms": g.rebalancing_since_ms,
            }
            for g in groups
        ],
        "skip": skip,
        "limit": PAGE_ROWS,
        "matching": matching,
    }


def group(
    admin: GroupAdmin, group_id: str, *, members: int, partitions: int, find: str, sort: str
) -> View:
    """Return a group: its phase, and a page of its members and of its partitions.

    Args:
        members, partitions: the page of each, from 1 on; 0: none is shown.
        find: text in a partition's `topic-number`, or in its owner's name.
        sort: `lag`: the partitions furthest behind come first; others sort by name.
    Raises:
        LookupError: there is no such group.
    """
    group = admin.existing_group(group_id)
    offsets, ends = admin.offsets(group_id), admin.log_ends(group_id)
    owned = {m.member_id: partitions_in(m.member_assignment) or () for m in group.members}
    owners = {
        key: member.client_id or member.member_id
        for member in group.members
        for key in owned[member.member_id]
    }
    lags = {key: lag_of(end, offsets.get(key)) for key, end in ends.items()}
    everything = owners.keys() | offsets.keys() | ends.keys()
    is_session = group.group_type == SESSION
    is_stable = group.group_state == "Stable" or is_session

    def partition_rows() -> list[TopicPartition]:
        wanted = find.lower()
        matching = [
            key
            for key in everything
            if not wanted or wanted in str(key).lower() or wanted in owners.get(key, "").lower()
        ]
        return sorted(matching, key=lambda key: (-lags.get(key, -1) if sort == "lag" else 0, key))

    return {
        "state": group.group_state,
        "type": group.group_type or CLASSIC,
        "generation": group.generation_id,
        "protocol": group.protocol_data,
        "member_count": len(group.members),
        "partition_count": len(everything),
        "lag": str(sum(lags.values())) if lags else None,
        "phase": _phase(admin, group_id),
        "session": session_view(admin.describe_session_group(group_id)) if is_session else None,
        "members": _page(
            sorted(group.members, key=lambda m: (m.client_id, m.member_id)),
            members,
            lambda m: {
                "member_id": m.member_id,
                "client_id": m.client_id,
                "host": m.client_host.removeprefix("/"),
                "software": m.client_software,
                "instance_id": m.group_instance_id,
                "partitions": len(owned[m.member_id]) if is_stable else None,
                "is_leader": m.member_id == group.leader,
            },
        )
        if members
        else None,
        "partitions": _page(
            partition_rows(),
            partitions,
            lambda key: {
                "topic": key.topic,
                "partition": key.partition,
                "offset": _text(offsets.get(key)),
                "end": _text(ends[key].log_end_offset if key in ends else None),
                "lag": _text(lags.get(key)),
                "owner": owners.get(key),
            },
        )
        if partitions
        else None,
    }


PHASES = {
    "PreparingRebalance": "join",
    "CompletingRebalance": "sync",
    "Assigning": "assigning",
    "Reconciling": "reconciling",
}


def _phase(admin: GroupAdmin, group_id: str) -> View | None:
    """Return the phase of a rebalance that is running; None if none is."""
    phase = admin.phase(group_id)
    if phase.deadline_ms < 0:
        return None
    name = PHASES.get(phase.group_state, "sync")
    awaited = sorted(phase.awaited, key=lambda m: m.last_seen_ms)
    return {
        "name": "initial" if phase.is_initial_delay else name,
        "since_ms": phase.since_ms,
        "deadline_ms": phase.deadline_ms,
        "awaited_count": len(awaited),
        "awaited": [
            {
                "member_id": m.member_id,
                "client_id": m.client_id,
                "host": m.client_host.removeprefix("/"),
                "is_leader": m.is_leader,
                "last_seen_ms": m.last_seen_ms,
                "session_timeout_ms": m.session_timeout_ms,
            }
            for m in awaited[:AWAITED_ROWS]
        ],
    }


def rebalances(admin: GroupAdmin, group_id: str) -> View:
    """Return the group's journal, newest first, and refused joins.

    Raises:
        LookupError: there is no such group.
    """
    journal = admin.journal(group_id)
    return {
        "rebalances": [_brief(rebalance) for rebalance in journal.rebalances],
        "refused": [refused.explanation for refused in journal.refused_joins],
    }


def _brief(record: Rebalance) -> View:
    row = plain(explained(record))
    return {
        **{key: row[key] for key in _IN_BRIEF},
        "plan": plan_line(record) if record.HasField("session_plan") else None,
    }


def generation(admin: GroupAdmin, group_id: str, number: int) -> View:
    """Return the rebalances that led to a generation, newest first: more than one if interrupted.

    Raises:
        LookupError: there is no such group.
    """
    return {
        "rebalances": [
            _generation(r)
            for r in admin.journal(group_id).rebalances
            if r.generation_after == number
        ]
    }


_IN_BRIEF = (
    "generation", "cause", "caused_by", "outcome", "started_at_ms", "ended_at_ms", "explanation",
)  # fmt: skip


def _generation(record: Rebalance) -> View:
    """The row of `coordinator explain`, with moves and times in words."""
    row = explained(record)
    idle_row = row.not_worked_on
    return {
        **plain(row),
        "removed": plain(row.removed[:PAGE_ROWS]),
        "not_worked_on": {
            "partitions": idle_row.partitions,
            "longest": spell_between(idle_row.longest_ms_min, idle_row.longest_ms_max),
        }
        if idle_row is not None and idle_row.partitions
        else None,
        "moves": [
            {
                "partitions": partitions_of(m.topic, m.partitions, m.partition_count),
                "count": m.partition_count,
                "from": name_of(m.from_member_id, m.from_client_id),
                "to": name_of(m.to_member_id, m.to_client_id),
                "has_moved": m.has_moved,
                "not_worked_on": spell_between(m.unowned_ms_min, m.unowned_ms_max),
                "known_by": KNOWN_BY.get(m.known_by, m.known_by),
            }
            for m in record.moves[:PAGE_ROWS]
        ],
        "partitions_left_out": row.partitions_left_out
        + sum(m.partition_count for m in row.moves[PAGE_ROWS:]),
    }


def nodes(admin: Nodes, *, page: int) -> View:
    """Return the nodes, a page of the shards, and the number of shards without a leader."""
    cluster = admin.describe()
    led = Counter(shard.leader for shard in cluster.shards)
    replicas = Counter(node for shard in cluster.shards for node in shard.replicas)
    in_sync = Counter(node for shard in cluster.shards for node in shard.in_sync)
    return {
        "nodes": [
            {
                "node_id": node.node_id,
                "address": address_of(node.host, node.port),
                "draining": node.draining,
                "is_controller": node.node_id == cluster.controller,
                "leads": led[node.node_id],
                "replicas": replicas[node.node_id],
                "in_sync": in_sync[node.node_id],
            }
            for node in cluster.nodes
        ],
        "unled": led[-1],
        "shards": _page(
            cluster.shards,
            page,
            lambda shard: {
                "shard": shard.shard,
                "leader": shard.leader,
                "epoch": str(shard.epoch),
                "replicas": list(shard.replicas),
                "in_sync": list(shard.in_sync),
            },
        ),
    }


def now_ms() -> int:
    """Milliseconds since the epoch, which ages on the page are counted from."""
    return round(time.time() * 1_000)


def _skip(page: int) -> int:
    return (min(max(1, page), PAGES_MAX) - 1) * PAGE_ROWS


def _page(rows: Sequence[Row], page: int, show: Callable[[Row], View]) -> View:
    skip = _skip(page)
    return {
        "rows": [show(row) for row in rows[skip : skip + PAGE_ROWS]],
        "skip": skip,
        "limit": PAGE_ROWS,
        "matching": len(rows),
    }


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
