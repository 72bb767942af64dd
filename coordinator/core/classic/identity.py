"""Who is asking: a member, a fenced one, or a stranger."""

from __future__ import annotations

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.member import Member
from coordinator.core.errors import ErrorCode, MustWait, Refused


def identify(group: ClassicGroup, member_id: str, instance_id: str | None) -> Member:
    """The member that a request speaks for.

    A request that leaves out a static member's instance id is judged by member id alone.

    Raises:
        Refused: UNKNOWN_MEMBER_ID for a stranger, FENCED_INSTANCE_ID for a process
            whose instance id another one has taken.
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


def check_settled(group: ClassicGroup, member: Member) -> None:
    """Go on unless a restarted process may take the member's place in this very moment.

    Raises:
        MustWait: for the log, which decides whether the caller is fenced.
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
