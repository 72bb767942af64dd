"""A restarted process takes the place of the static member that it was.

In a Stable group that is true when the log has it: `Group.apply` gives the place away, and
`welcome` follows. In a join phase ids are not durable before the next assignment is: `take_over`
does both at once. `static_members` decides which of the two it is.
"""

from __future__ import annotations

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.member import Member
from coordinator.core.classic.membership import note_joined, reset_session
from coordinator.core.classic.replacement import Replacement
from coordinator.core.events import StaticMemberReplaced
from coordinator.core.outcome import MemberKey, Outcome


def take_over(group: ClassicGroup, replacement: Replacement, now_ms: int, out: Outcome) -> Member:
    """Let a restarted process be the static member, with nothing in the log yet."""
    old_id = group.static_members[replacement.instance_id]
    held = group.members[old_id].assignment
    group.give_place(replacement.successor.record(group.protocol_name, held))
    return welcome(group, replacement, old_id, now_ms, out)


def welcome(
    group: ClassicGroup, replacement: Replacement, old_id: str, now_ms: int, out: Outcome
) -> Member:
    """Go on with a process that has its place: the one before is fenced from here on."""
    member = group.members[replacement.successor.member_id]
    group.set_protocols(member, replacement.command.protocols)
    # A process that restarts at once does so again: only its parked call keeps it alive.
    member.is_new = False
    out.check(MemberKey(group.group_id, old_id))
    reset_session(group, member, now_ms, out)
    out.note(
        StaticMemberReplaced(group.group_id, replacement.instance_id, old_id, member.member_id)
    )
    note_joined(group, member, out)
    return member


def take_over_early(group: ClassicGroup, now_ms: int, out: Outcome) -> None:
    """The group leaves Stable, and who waits for the log takes part in the join phase instead.

    A replacement that nobody waits for is left to the log: its old id stays.
    """
    replacements, group.replacements = group.replacements, ()
    for replacement in replacements:
        member = member_replaced(group, replacement)
        if member is not None and member.parked_join == replacement.command.call_id:
            take_over(group, replacement, now_ms, out)


def member_replaced(group: ClassicGroup, replacement: Replacement) -> Member | None:
    """The static member whose place a restarted process wants; None if it is gone."""
    return group.members.get(group.static_members.get(replacement.instance_id, ""))
