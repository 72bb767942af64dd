"""One group as rows and sentences: its partitions, its members, itself, and whom it waits for."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from coordinator.assignors import Subscription, TopicPartition
from coordinator.assignors.consumer_protocol import (
    ConsumerProtocolError,
    decode_subscription,
    partitions_in,
)
from coordinator.cli import group_rows as rows
from coordinator.cli import session_views
from coordinator.cli.log_offsets import LogOffsets
from coordinator.cli.session_views import SessionView
from coordinator.client.member.classic.declarations import differences, listed, read_declarations
from coordinator.observe.spelling import quoted, spell
from coordinator.operator.admin import (
    GroupAdmin,
    GroupDescription,
    MemberDescription,
    Phase,
    ReportedEnd,
    lag_of,
)
from coordinator.operator.session_admin import GroupNotFound
from coordinator.printable import printable

REBALANCING = ("PreparingRebalance", "CompletingRebalance")
SESSION = "Session"
NAMED_MAX = 5
"""Members that a sentence names; of more it gives the number. Topics that have a sentence."""
SENTENCE_MAX = 1_000
"""Longest sentence on what members declare, in characters: their names may be long."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group, and the phase that it is in if it rebalances, or if members are late with their
    heartbeats; or what a session group has.

    awaited: members that the phase waits for, by their ids. pending: member ids that were handed
    out, and have not joined yet.
    """

    group: GroupDescription
    phase: Phase | None
    awaited: dict[str, Phase.Member]
    pending: tuple[MemberDescription, ...]
    session: SessionView | None = None

    @classmethod
    def of(cls, admin: GroupAdmin, group: GroupDescription) -> GroupView:
        """Ask for the phase of a group with members, and for what sessions have of their own."""
        if group.group_type == SESSION:
            return cls(group, None, {}, (), SessionView.of(admin, group.group_id))
        is_used = group.members or group.group_state in REBALANCING
        phase = _phase(admin, group.group_id) if is_used else None
        awaited = {m.member_id: m for m in phase.awaited} if phase is not None else {}
        known = {member.member_id for member in group.members}
        pending = (MemberDescription(member_id=id) for id in awaited if id not in known)
        return cls(group, phase, awaited, tuple(pending))

    @property
    def since_ms(self) -> int | None:
        """Start of the phase of a rebalance, epoch milliseconds."""
        if self.phase is None or self.phase.group_state not in REBALANCING:
            return None
        return self.phase.since_ms


def _phase(admin: GroupAdmin, group_id: str) -> Phase | None:
    """The phase of a group; None if it has ended since."""
    try:
        phase = admin.phase(group_id)
    except GroupNotFound:
        return None
    return phase if phase.deadline_ms >= 0 else None


# --- Rows ---------------------------------------------------------------------------------------


def partition_rows(admin: GroupAdmin, view: GroupView, logs: LogOffsets) -> list[rows.PartitionRow]:
    """Partitions with an owner or an offset, then members without partitions."""
    group = view.group
    ends = admin.log_ends(group.group_id)
    ends |= {
        # One row alone does not tell where the log begins.
        key: ReportedEnd(
            log_begin_offset=offsets[0][0] * (len(offsets) > 1), log_end_offset=offsets[-1][0]
        )
        for key, offsets in logs.rows.items()
    }
    committed = admin.offsets(group.group_id)
    owners: dict[TopicPartition, MemberDescription] = {}
    idle: list[MemberDescription] = []
    for member in group.members:
        owned = partitions_in(member.member_assignment)
        owners |= dict.fromkeys(owned or (), member)
        if not owned:
            idle.append(member)

    def row(key: TopicPartition | None, member: MemberDescription) -> rows.PartitionRow:
        current = committed.get(key) if key is not None else None
        end = ends.get(key) if key is not None else None
        awaited = view.awaited.get(member.member_id)
        kind = rows.PartitionRow if view.session is None else rows.SessionPartitionRow
        return kind(
            group=group.group_id,
            topic=key.topic if key is not None else None,
            partition=key.partition if key is not None else None,
            current_offset=current,
            log_end_offset=None if end is None else end.log_end_offset,
            lag=None if end is None else lag_of(end, current),
            log_is_short=end is not None and end.is_short,
            consumer_id=member.member_id or None,
            host=member.client_host or None,
            client_id=member.client_id or None,
            client_software=member.client_software or None,
            group_instance_id=_instance(member),
            state=group.group_state,
            rebalancing_since_ms=view.since_ms,
            waited_for=awaited is not None,
            last_seen_ms=_last_seen(awaited),
            **(known.get(key, {}) if key is not None else {}),
        )

    nobody = MemberDescription()
    known = view.session.columns if view.session is not None else {}
    keys = sorted(owners.keys() | committed.keys() | known.keys())
    return [
        *(row(key, owners.get(key, nobody)) for key in keys),
        *(row(None, member) for member in (*idle, *view.pending)),
    ]


def summary_row(admin: GroupAdmin, view: GroupView, logs: LogOffsets) -> rows.GroupSummaryRow:
    group, phase = view.group, view.phase
    partitions = [row for row in partition_rows(admin, view, logs) if row.topic is not None]
    lags = [row.lag for row in partitions if row.lag is not None]
    return rows.GroupSummaryRow(
        group=group.group_id,
        coordinator=admin.coordinator_of(group.group_id),
        assignment_strategy=group.protocol_data or None,
        state=group.group_state,
        generation=group.generation_id,
        members=len(group.members),
        partitions=len(partitions),
        total_lag=sum(lags) if lags else None,
        partitions_without_lag=len(partitions) - len(lags),
        rebalancing_since_ms=view.since_ms,
        waits_until_ms=None if phase is None else phase.deadline_ms,
        waits_for=tuple(
            rows.AwaitedMemberRow(
                consumer_id=member.member_id,
                client_id=member.client_id or None,
                host=member.client_host or None,
                last_seen_ms=_last_seen(member),
            )
            for member in view.awaited.values()
        ),
    )


def member_rows(view: GroupView) -> Iterator[rows.MemberRow]:
    """Members, then ids that were handed out and have not joined yet, or processes that wait."""
    group = view.group
    if view.session is not None:
        yield from _session_members(view, view.session)
        return
    for member in (*group.members, *view.pending):
        owned = None
        if group.group_state not in REBALANCING:
            owned = partitions_in(member.member_assignment)
        awaited = view.awaited.get(member.member_id)
        yield rows.MemberRow(
            group=group.group_id,
            consumer_id=member.member_id,
            group_instance_id=_instance(member),
            host=member.client_host or None,
            client_id=member.client_id or None,
            partitions=None if owned is None else len(owned),
            assignment=None if owned is None else _by_topic(owned),
            client_software=member.client_software or None,
            leader=member.member_id == group.leader,
            state=group.group_state,
            rebalancing_since_ms=view.since_ms,
            waited_for=awaited is not None,
            last_seen_ms=_last_seen(awaited),
        )


def _session_members(view: GroupView, session: SessionView) -> Iterator[rows.MemberRow]:
    held = {m.member_id: partitions_in(m.member_assignment) or () for m in view.group.members}
    for member in session.described.members:
        owned = held.get(member.member_id, ())
        yield rows.SessionMemberRow(
            group=view.group.group_id,
            consumer_id=member.member_id,
            group_instance_id=member.member_name or None,
            host=member.client_host or None,
            client_id=member.client_id or None,
            partitions=member.partition_count,
            assignment=_by_topic(owned),
            client_software=None,
            leader=False,
            state=session.described.group_state,
            rebalancing_since_ms=None,
            waited_for=any(
                handoff.waits_for == member.member_id for handoff in session.described.handoffs
            ),
            last_seen_ms=None if member.last_seen_ms < 0 else member.last_seen_ms,
            **session_views.member_columns(member),
        )


def _by_topic(owned: Iterable[TopicPartition]) -> tuple[rows.TopicPartitions, ...]:
    topics: dict[str, list[int]] = {}
    for key in owned:
        topics.setdefault(key.topic, []).append(key.partition)
    return tuple(
        rows.TopicPartitions(topic=topic, partitions=tuple(sorted(numbers)))
        for topic, numbers in topics.items()
    )


def _instance(member: MemberDescription) -> str | None:
    return member.group_instance_id if member.HasField("group_instance_id") else None


def _last_seen(awaited: Phase.Member | None) -> int | None:
    """Time of the last sign of an awaited member, epoch ms; None for one that has not joined."""
    return awaited.last_seen_ms if awaited is not None and awaited.client_host else None


# --- Sentences ----------------------------------------------------------------------------------


def sentences(view: GroupView) -> Iterator[str]:
    """Differences between members, and since when the group rebalances and whom it waits for."""
    group, phase = view.group, view.phase
    if view.session is not None:
        yield from session_views.sentences(view.session)
    else:
        yield from _declared_differently(group)
        yield from unassigned_topics(group)
    if phase is None:
        return
    now_ms = round(time.time() * 1_000)
    count, all_members = len(phase.awaited), len(group.members) + len(view.pending)
    if phase.is_initial_delay:
        whom = "more first members (the initial delay)"
    elif not count:
        whom = "its log"
    else:
        named = [_named(member, now_ms) for member in phase.awaited[:NAMED_MAX]]
        more = f" and {count - NAMED_MAX} more" if count > NAMED_MAX else ""
        whom = f"{count} of {all_members} members: {', '.join(named)}{more}"
    since, ends = (
        f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%H:%M:%S} UTC"
        for at_ms in (phase.since_ms, phase.deadline_ms)
    )
    if phase.group_state not in REBALANCING:
        yield (
            f"Consumer group {quoted(group.group_id)} is {phase.group_state}, but the heartbeats "
            f"are late of {whom}. Who stays silent is removed at {ends}."
        )
        return
    yield (
        f"Consumer group {quoted(group.group_id)} is {phase.group_state} since {since} "
        f"({spell(max(0, now_ms - phase.since_ms))}) and waits until {ends} at the latest for "
        f"{whom}."
    )


def short_logs(listed: Iterable[rows.PartitionRow]) -> Iterator[str]:
    """Partitions whose logs end before what is committed."""
    sentences = [
        f"The log of {printable(f'{row.topic}-{row.partition}')} ends at {row.log_end_offset}, and "
        f"{row.current_offset} is committed: it was made anew or has lost rows, and rows below "
        "that offset are not worked on. 'coordinator groups reset-offsets' sets another."
        for row in listed
        if row.log_is_short
    ]
    return _first(sentences, "partitions")


def unassigned_topics(group: GroupDescription) -> Iterator[str]:
    """Topics that members subscribe to and nobody is assigned, while the group is Stable.

    A static member that comes back with another subscription begins no rebalance (KIP-345).
    """
    assigned = {
        key.topic for m in group.members for key in partitions_in(m.member_assignment) or ()
    }
    wanted: dict[str, list[str]] = {}
    for member in group.members if assigned and group.group_state == "Stable" else ():
        with suppress(ConsumerProtocolError):
            for topic in set(decode_subscription(member.member_metadata).topics) - assigned:
                wanted.setdefault(topic, []).append(quoted(_instance(member) or member.member_id))
    sentences = [
        f"In consumer group {quoted(group.group_id)} nobody is assigned {quoted(topic)}, which "
        f"{listed(names)} subscribed to: it has no partitions, or a static member has come back "
        "with a new subscription, which the next rebalance takes in."
        for topic, names in sorted(wanted.items())
    ]
    return _first(sentences, "topics")


def _first(sentences: Sequence[str], of: str) -> Iterator[str]:
    """The first sentences of many."""
    yield from sentences[:NAMED_MAX]
    if len(sentences) > NAMED_MAX:
        yield f"So it is with {len(sentences) - NAMED_MAX} more {of}."


def _declared_differently(group: GroupDescription) -> Iterator[str]:
    """Warnings of the leader; metadata that are no subscriptions declare nothing."""
    subscribed: dict[str, Subscription] = {}
    for member in group.members:
        with suppress(ConsumerProtocolError):
            subscribed[member.member_id] = decode_subscription(member.member_metadata)
    declared = read_declarations(subscribed)
    name = {member.member_id: _instance(member) or member.member_id for member in group.members}
    undeclared = {name[m]: one.topics for m, one in subscribed.items() if m not in declared}
    differing = differences(
        {name[m]: one for m, one in declared.items()},
        undeclared if group.leader in declared else None,
    )
    head = f"In consumer group {quoted(group.group_id)}"
    return _first(
        [f"{head} {printable(sentence, SENTENCE_MAX)}." for sentence in differing], "topics"
    )


def _named(member: Phase.Member, now_ms: int) -> str:
    if not member.client_host:
        return f"{quoted(member.member_id)} (has not joined yet)"
    last_seen = spell(max(0, now_ms - member.last_seen_ms))
    name = quoted(member.client_id or member.member_id)
    return f"{name} on {printable(member.client_host)} (seen {last_seen} ago)"
