"""Identification of the member that sends a request, and checks of its generation."""

from __future__ import annotations

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.member import ClassicMember
from coordinator.core.values.errors import ErrorCode, MustWait, Refused


def identify(group: ClassicGroup, member_id: str, instance_id: str | None) -> ClassicMember:
    """Return the member that sends a request.

    Without an instance id a static member is identified by its member id alone.

    Raises:
        Refused: UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID for a process whose instance id
            another process has taken.
    Source: KIP-345; Kafka `ClassicGroup.validateMember`.
    """
    if instance_id is not None:
        owner = group.static_members.get(instance_id)
        if owner is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        if owner != member_id:
            raise Refused(ErrorCode.FENCED_INSTANCE_ID)
    member = group.members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def check_not_replaced(group: ClassicGroup, member: ClassicMember) -> None:
    """Wait if a restarted process is taking the member's place.

    Raises:
        MustWait: the result of that write decides whether the caller is fenced.
    """
    for replacement in group.replacements:
        if replacement.deadline_ms is not None:
            if replacement.command.instance_id == member.instance_id:
                raise MustWait(replacement.deadline_ms)


def check_generation(group: ClassicGroup, generation: int) -> None:
    """Refuse a generation that is not the current one.

    Raises:
        Refused: ILLEGAL_GENERATION.
    """
    if generation != group.generation:
        raise Refused(
            ErrorCode.ILLEGAL_GENERATION,
            f"the group is in generation {group.generation}, not {generation}; join again",
        )
