"""Steps by which a restarted process takes the place of a static member.

In a Stable group the change is written first: `Group.apply` makes it, and `welcome` follows. In a
join phase member ids are not durable before the next assignment is: `take_over` does both at once.
`static_members` chooses between the two.
"""

from __future__ import annotations

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.member import ClassicMember
from coordinator.core.classic.membership import note_joined, reset_session
from coordinator.core.classic.replacement import Replacement
from coordinator.core.step import Step
from coordinator.core.values.effects import MemberKey
from coordinator.core.values.events import StaticMemberReplaced


def take_over(group: ClassicGroup, replacement: Replacement, step: Step) -> ClassicMember:
    """Give the static member's place to the new process before any record of it is written."""
    old_id = group.static_members[replacement.instance_id]
    held = group.members[old_id].assignment
    group.give_place(replacement.successor.record(group.protocol_name, held))
    return welcome(group, replacement, old_id, step)


def welcome(
    group: ClassicGroup, replacement: Replacement, old_id: str, step: Step
) -> ClassicMember:
    """Set up a new process that has taken the place; the old one is fenced from now on."""
    member = group.members[replacement.successor.member_id]
    group.set_protocols(member, replacement.command.protocols)
    # While its JoinGroup is parked, a passed deadline evicts only a new member.
    member.is_new = False
    step.out.check(MemberKey(group.group_id, old_id))
    sign = member.last_sign()
    reset_session(group, member, step)
    step.out.note(
        StaticMemberReplaced(
            group.group_id, replacement.instance_id, old_id, member.member_id, *sign
        )
    )
    note_joined(group, member, step)
    return member


def take_over_early(group: ClassicGroup, step: Step) -> None:
    """Complete waiting replacements at once, because the group leaves Stable.

    A replacement without a parked call is not completed: the old member id stays.
    """
    replacements, group.replacements = group.replacements, ()
    for replacement in replacements:
        member = member_replaced(group, replacement)
        if member is not None and member.parked_join == replacement.command.call_id:
            take_over(group, replacement, step)


def member_replaced(group: ClassicGroup, replacement: Replacement) -> ClassicMember | None:
    """Return the static member to replace; None if it has left."""
    return group.members.get(group.static_members.get(replacement.instance_id, ""))
