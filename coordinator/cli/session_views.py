"""A session group as rows and sentences: holders, hand-offs, members, and who is waited for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from coordinator.assignors import TopicPartition
from coordinator.observe.spelling import count_of, member_of, quoted, spell
from coordinator.operator.admin import GroupAdmin
from coordinator.operator.session_admin import (
    WAITING,
    GroupNotFound,
    GroupPolicy,
    SessionGroup,
    free_of,
    status,
)
from coordinator.printable import printable

SHOWN_MAX = 5
"""Hand-offs, members and reasons that sentences name; of more they give the number."""


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session group, with its partitions by name.

    columns: values of the columns of `SessionPartitionRow` that classic groups do not have.
    """

    described: SessionGroup
    members: dict[str, SessionGroup.Member]
    columns: dict[TopicPartition, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, admin: GroupAdmin, group_id: str) -> SessionView | None:
        """Ask for a group; None if it is gone, or has become a classic one."""
        try:
            described = admin.describe_session_group(group_id)
        except LookupError as error:
            if isinstance(error, GroupNotFound) or "classic" in str(error):
                return None
            raise
        view = cls(described, {member.member_id: member for member in described.members})
        view.columns.update(_columns(described))
        return view

    def name(self, member_id: str) -> str:
        """Name of a member, or a short form of its id, quoted."""
        member = self.members.get(member_id)
        return member_of(member_id) if member is None else name_of_member(member)


def _columns(described: SessionGroup) -> Iterator[tuple[TopicPartition, dict[str, Any]]]:
    for topic in described.topics:
        for holding in topic.holdings:
            span = holding.partitions
            for number in range(span.first, span.last + 1):
                token = span.first_token + number - span.first
                yield TopicPartition(topic.name, number), {"token": token, "phase": "held"}
        for free in topic.free:
            for number in range(free.partitions.first, free.partitions.last + 1):
                yield TopicPartition(topic.name, number), {"phase": "free", "why": free.why}
    for reservation in described.reservations:
        for held in reservation.topics:
            for span in held.partitions:
                for number in range(span.first, span.last + 1):
                    yield (
                        TopicPartition(held.name, number),
                        {
                            "phase": "reserved",
                            "why": reservation.member_name,
                            "phase_ends_ms": reservation.until_ms,
                        },
                    )
    for handoff in described.handoffs:
        yield (
            TopicPartition(handoff.topic, handoff.partition),
            {
                "token": handoff.token or None,
                "phase": handoff.phase,
                "successor_id": handoff.successor_member_id or None,
                "phase_ends_ms": None if handoff.phase_ends_ms < 0 else handoff.phase_ends_ms,
            },
        )


def member_columns(member: SessionGroup.Member) -> dict[str, Any]:
    """Values of the columns of `SessionMemberRow` that classic groups do not have."""
    return {
        "status": status(member),
        "lease_ms": member.lease_ms,
        "lease_ends_ms": None if member.lease_ends_ms < 0 else member.lease_ends_ms,
        "waits_for_id": member.waits_for or None,
        "why": member.why or None,
        "differing_wishes": settings_of(member.differing_wishes),
    }


def name_of_member(member: SessionGroup.Member) -> str:
    """Name of a member, or a short form of its id, quoted."""
    return quoted(member.member_name) if member.member_name else member_of(member.member_id)


def settings_of(policy: GroupPolicy) -> dict[str, int | str | bool]:
    """The settings that a policy has, by name; enums in lower case."""
    settings: dict[str, int | str | bool] = {}
    for descriptor, value in policy.ListFields():
        values = descriptor.enum_type and descriptor.enum_type.values_by_number
        settings[descriptor.name] = values[value].name.lower() if values else value
    return settings


# --- Sentences ----------------------------------------------------------------------------------


def sentences(view: SessionView) -> Iterator[str]:
    """Sentences about what is open in a group, and who is waited for; none if it is at rest."""
    described = view.described
    head = f"Consumer group {quoted(described.group_id)}"
    if described.next_plan_ms >= 0 and described.group_state == "Assigning":
        left_ms = max(0, described.next_plan_ms - described.now_ms)
        yield f"{head} is Assigning: the next plan is due in {spell(left_ms)}."
    if described.handoffs:
        open_ = _some([_handoff(view, handoff) for handoff in described.handoffs])
        yield f"{head} has {count_of(len(described.handoffs), 'open hand-off')}: {open_}."
    yield from _of_members(view, head)
    for why, count in sorted(free_of(described).items()):
        yield f"{head} has {count_of(count, 'partition')} that nobody holds: {_WHY.get(why, why)}."
    for reservation in described.reservations:
        left = spell(max(0, reservation.until_ms - described.now_ms))
        name = quoted(reservation.member_name)
        yield f"{head} reserves partitions for {name}, for {left} at most."


def _of_members(view: SessionView, head: str) -> Iterator[str]:
    now_ms = view.described.now_ms
    suspects = [m for m in view.described.members if status(m) == "suspect"]
    if suspects:
        named = _some(
            f"{name_of_member(m)} (lease ends in {spell(max(0, m.lease_ends_ms - now_ms))})"
            for m in suspects
        )
        yield f"{head} has {count_of(len(suspects), 'member')} without a stream: {named}."
    for member in view.described.members:
        if member.standing == WAITING:
            left = spell(max(0, member.lease_ends_ms - now_ms))
            yield (
                f"A process on {printable(member.client_host)} waits for the name "
                f"{quoted(member.member_name)}, which is member {quoted(member.waits_for)}; it "
                f"inherits in {left} unless that one is heard."
            )
    yield from _wishes(view.described, head)


def _wishes(described: SessionGroup, head: str) -> Iterator[str]:
    """Sentences about wishes of members that the policy does not grant, one for each wish."""
    wishing: dict[tuple[str, int | str | bool], list[str]] = {}
    for member in described.members:
        for wish in settings_of(member.differing_wishes).items():
            wishing.setdefault(wish, []).append(name_of_member(member))
    policy = settings_of(described.policy)
    for (name, value), members in sorted(wishing.items(), key=str):
        yield f"{head} has {name} {policy.get(name)}; asked for {value}: {_some(members)}."


_WHY = {
    "plan_due": "the next plan looks for a holder",
    "nobody_receives": "no member receives partitions",
    "capacity": "all members have as many as they take",
    "not_allowed": "every member is excluded from them, or has refused them lately",
    "pinned": "they are pinned to a member that is not there",
    "refused": "they were refused three times in a row, and wait",
    "handover_delay": "they wait after the end of a lease (handover_delay_ms)",
}


def _handoff(view: SessionView, handoff: SessionGroup.Handoff) -> str:
    now_ms = view.described.now_ms
    topic_partition = printable(f"{handoff.topic}-{handoff.partition}")
    source = view.name(handoff.source_member_id) if handoff.source_member_id else "nobody"
    to = view.name(handoff.successor_member_id) if handoff.successor_member_id else "nobody yet"
    waits = f"waits for {view.name(handoff.waits_for)}" if handoff.waits_for else "is written"
    since = ""
    if handoff.phase_since_ms >= 0:
        since = f" for {spell(max(0, now_ms - handoff.phase_since_ms))}"
    ends = ""
    if handoff.phase_ends_ms >= 0:
        ends = f", {spell(max(0, handoff.phase_ends_ms - now_ms))} left"
    return f"{topic_partition} from {source} to {to} ({handoff.phase}{since}{ends}, {waits})"


def _some(parts: Iterable[str]) -> str:
    shown = list(parts)
    more = f" and {len(shown) - SHOWN_MAX} more" if len(shown) > SHOWN_MAX else ""
    return "; ".join(shown[:SHOWN_MAX]) + more
