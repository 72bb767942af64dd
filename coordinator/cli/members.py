"""`coordinator members`: what operators do with members of session groups."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coordinator.cli.connection import add_common_flags, credentials_of
from coordinator.cli.output import Output, show
from coordinator.cli.parser import add_actions
from coordinator.observe.rows import column

if TYPE_CHECKING:
    from coordinator.operator.admin import GroupAdmin


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictedRow:
    """The eviction of a member, or of a name for which partitions are reserved."""

    group: str = column("Group id.")
    member_id: str | None = column("Member id; null: partitions are reserved for the name alone.")
    name: str | None = column("Name of the member; null: it has none.")
    partitions: int = column(
        "Number of partitions that it holds, or that are reserved for its name.", "#PARTITIONS"
    )
    gone: bool = column("True if its partitions are free at once.", None)
    executed: bool = column("True if it was evicted; false for a dry run.")


def add_parsers(commands: Any) -> None:  # Any: argparse does not name its type.
    """The actions and their flags."""
    text = "evict members of session groups"
    actions = add_actions(commands.add_parser("members", help=text, description=text))
    text = "take everything from a member, and end its session; a dry run unless --execute is given"
    command = actions.add_parser("evict", help=text, description=f"{text.capitalize()}.")
    command.set_defaults(run=run)
    add_common_flags(command, EvictedRow, can_watch=False)
    command.add_argument("group", metavar="GROUP", help="group id")
    command.add_argument("member", metavar="MEMBER", help="name or id of the member")
    command.add_argument(
        "--gone",
        action="store_true",
        help="you vouch that the process has ended: its partitions are free at once, and not when "
        "it has released them, a lease later at the latest",
    )
    act = command.add_mutually_exclusive_group()
    act.add_argument("--dry-run", action="store_true", help="show what it holds (default)")
    act.add_argument("--execute", action="store_true", help="evict it")


def run(options: argparse.Namespace) -> int:
    """Evict a member, and print what it held; the exit status."""

    def act() -> Output:
        from coordinator.operator.admin import GroupAdmin

        with GroupAdmin(options.bootstrap, credentials=credentials_of(options)) as admin:
            return _evict(admin, options)

    return show(options, act)


def _evict(admin: GroupAdmin, options: argparse.Namespace) -> Output:
    group = admin.describe_session_group(options.group)
    member_id = _member_id(group, options.member)
    response = admin.evict_member(
        options.group,
        member_id=member_id,
        member_name="" if member_id else options.member,
        gone=options.gone,
        dry_run=not options.execute,
    )
    row = EvictedRow(
        group=options.group,
        member_id=response.member_id or None,
        name=response.member_name or None,
        partitions=response.partition_count,
        gone=options.gone,
        executed=options.execute,
    )
    if options.execute:
        note = "A process that still runs may attach again: stop it to keep it out."
    else:
        note = "Dry run: nobody was evicted; --execute does it."
    return Output(EvictedRow, [row], notes=[note])


def _member_id(group: Any, named: str) -> str:  # Any: the wire's type.
    """The id of a member that is named by its name or its id; empty: a name that is reserved.

    Raises:
        LookupError: there is neither a member nor a reserved name.
    """
    from coordinator.cli.refusals import nearest
    from coordinator.observe.spelling import quoted
    from coordinator.operator.session_admin import WAITING

    members = [found_member for found_member in group.members if found_member.standing != WAITING]
    for member in members:
        if named in (member.member_name, member.member_id):
            return str(member.member_id)
    reserved = [reservation.member_name for reservation in group.reservations]
    if named in reserved:
        return ""
    known = [member_id.member_name or member_id.member_id for member_id in members] + reserved
    there = f"its members are {nearest(named, known)}" if known else "it has none"
    raise LookupError(f"Group {quoted(group.group_id)} has no member {quoted(named)}; {there}.")
