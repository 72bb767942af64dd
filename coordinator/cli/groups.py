"""`coordinator groups`: its actions and their flags, with the names of Kafka's own tool.

What they do is in `group_reads.py` and `group_changes.py`, which are imported to run one.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from coordinator.cli import group_rows as rows
from coordinator.cli.connection import add_common_flags, credentials_of
from coordinator.cli.output import Output, show
from coordinator.cli.parser import add_actions
from coordinator.cli.partitions import FORM, selection
from coordinator.cli.times import DURATION_FORM, TIME_FORM, duration_ms, epoch_ms

STATES = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Stable",
    "Dead",
)
TYPES = ("Classic", "Session")
_INT64 = 2**63
_READS: tuple[tuple[str, str, type], ...] = (
    ("list", "list all groups", rows.GroupRow),
    ("state", "show groups as wholes: state, assignor, members, lag", rows.GroupSummaryRow),
    ("describe", "show partitions: offsets, lag and owners", rows.PartitionRow),
    ("members", "list members", rows.MemberRow),
    ("offsets", "list committed offsets", rows.OffsetRow),
)
_CHANGES: tuple[tuple[str, str, type], ...] = (
    (
        "remove-member",
        "remove members from a group; those that run may join again",
        rows.RemovedMemberRow,
    ),
    ("delete", "delete groups that have no members", rows.DeletedGroupRow),
    ("delete-offsets", "delete offsets of topics that no member reads", rows.DeletedOffsetRow),
    ("reset-offsets", "reset offsets; a dry run unless --execute is given", rows.NewOffsetRow),
)


def add_parsers(commands: Any) -> None:  # Any: argparse does not name its type.
    """The actions and their flags."""
    text = "list, describe and change groups and their offsets"
    actions = add_actions(commands.add_parser("groups", help=text, description=text))
    for name, text, kind in (*_READS, *_CHANGES):
        command = actions.add_parser(name, help=text, description=f"{text.capitalize()}.")
        command.set_defaults(run=run, action=name)
        _FLAGS[name](command)
        is_read = (name, text, kind) in _READS
        kinds = (kind, rows.GroupSummaryRow) if name == "describe" else (kind,)
        add_common_flags(command, *kinds, can_watch=is_read)


def run(options: argparse.Namespace) -> int:
    """Run an action and print what it returns; the exit status."""

    def act() -> Output:
        from coordinator.cli.group_changes import CHANGES
        from coordinator.cli.group_reads import READS
        from coordinator.operator.admin import GroupAdmin

        credentials = credentials_of(options)
        with GroupAdmin(options.bootstrap, remember=True, credentials=credentials) as admin:
            return (READS | CHANGES)[options.action](admin, options)

    return show(options, act)


# --- Flags --------------------------------------------------------------------------------------


def _add_filters(command: argparse.ArgumentParser) -> None:
    for name, known in (("state", STATES), ("type", TYPES)):
        command.add_argument(
            f"--{name}",
            action="append",
            default=[],
            nargs="?",
            const=(),
            type=_names_of(name, known),
            metavar=f"{name.upper()}[,…]",
            help=f"list only groups of these {name}s, of {', '.join(known)}; repeatable",
        )


def _names_of(kind: str, known: tuple[str, ...]) -> Any:  # Any: argparse's type of a value.
    by_name = {name.lower(): name for name in known}

    def names(text: str) -> tuple[str, ...]:
        chosen_names = [by_name.get(name.strip().lower()) for name in text.split(",")]
        if None in chosen_names:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no {kind}: the {kind}s are {', '.join(known)}"
            )
        return tuple(name for name in chosen_names if name is not None)

    return names


def _add_groups(command: argparse.ArgumentParser) -> None:
    section = command.add_argument_group("groups, one of")
    section.add_argument("group", nargs="*", type=_text, metavar="GROUP", help="group ids")
    section.add_argument("--all", action="store_true", help="all groups")
    section.add_argument(
        "--regex",
        type=_pattern,
        metavar="PATTERN",
        help="groups whose id contains a match of this regular expression; ^ and $ are its ends",
    )


def _add_describe_flags(command: argparse.ArgumentParser) -> None:
    _add_groups(command)
    command.add_argument(
        "--summary",
        action="store_true",
        help="one row for each group: state, assignor, members, total lag",
    )
    _add_log_offsets(command)


def _add_members_flags(command: argparse.ArgumentParser) -> None:
    _add_groups(command)
    command.add_argument("--verbose", action="store_true", help="show assignments")


def _add_removal_flags(command: argparse.ArgumentParser) -> None:
    _add_group(command)
    section = command.add_argument_group("members, one of")
    which = section.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--member-id",
        action="append",
        default=[],
        type=_text,
        metavar="ID",
        help="the member with this id (CONSUMER-ID); repeatable",
    )
    which.add_argument(
        "--instance-id",
        action="append",
        default=[],
        type=_text,
        metavar="ID",
        help="the static member with this instance id; repeatable",
    )
    which.add_argument("--all", action="store_true", help="all members")
    command.add_argument(
        "--reason", default="", metavar="TEXT", help="reason that the journal of rebalances keeps"
    )


def _add_deleted_groups(command: argparse.ArgumentParser) -> None:
    command.add_argument("group", nargs="+", type=_text, metavar="GROUP", help="group ids")


def _add_deletion_flags(command: argparse.ArgumentParser) -> None:
    _add_group(command)
    _add_topics(command, required=True)


def _add_reset_flags(command: argparse.ArgumentParser) -> None:
    _add_group(command)
    _add_topics(command, required=False)
    section = command.add_argument_group("new offset, one of")
    target = section.add_mutually_exclusive_group(required=True)
    options: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("--to-earliest", "start of each log; needs --log-offsets", {"action": "store_true"}),
        ("--to-latest", "end of each log; needs --log-offsets", {"action": "store_true"}),
        ("--to-current", "the committed offset", {"action": "store_true"}),
        ("--to-offset", "this offset", {"type": _offset, "metavar": "N"}),
        (
            "--to-datetime",
            f"first offset written then or later, {TIME_FORM}, UTC by default; needs --log-offsets",
            {"type": epoch_ms, "metavar": "TIME"},
        ),
        (
            "--by-duration",
            f"first offset written in the last {DURATION_FORM}; needs --log-offsets",
            {"type": duration_ms, "metavar": "DURATION"},
        ),
        ("--shift-by", "committed offset plus N", {"type": _shift, "metavar": "N"}),
        ("--from-file", "lines of TOPIC,PARTITION,OFFSET", {"type": Path, "metavar": "CSV"}),
    )
    for flag, meaning, how in options:
        target.add_argument(flag, help=meaning, **how)
    act = command.add_mutually_exclusive_group()
    act.add_argument("--dry-run", action="store_true", help="print the new offsets (default)")
    act.add_argument("--execute", action="store_true", help="commit the new offsets")
    command.add_argument(
        "--export", action="store_true", help="print the new offsets as CSV for --from-file"
    )
    _add_log_offsets(command)


def _add_group(command: argparse.ArgumentParser) -> None:
    command.add_argument("group", type=_text, metavar="GROUP", help="group id")


def _add_topics(command: argparse.ArgumentParser, *, required: bool) -> None:
    section = command.add_argument_group("partitions")
    which = section.add_mutually_exclusive_group(required=required)
    which.add_argument(
        "--topic",
        action="append",
        default=[],
        type=selection,
        metavar=FORM,
        help="partitions; without numbers all of the topic that have an offset; repeatable",
    )
    which.add_argument(
        "--all-topics",
        action="store_true",
        help="every partition with a committed offset" + ("" if required else " (default)"),
    )


def _add_log_offsets(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--log-offsets",
        type=Path,
        metavar="CSV",
        help="file with the begin and end offsets of the logs; columns: "
        "topic,partition,offset,timestamp_ms",
    )


_FLAGS = {
    "list": _add_filters,
    "state": _add_groups,
    "describe": _add_describe_flags,
    "members": _add_members_flags,
    "offsets": _add_groups,
    "remove-member": _add_removal_flags,
    "delete": _add_deleted_groups,
    "delete-offsets": _add_deletion_flags,
    "reset-offsets": _add_reset_flags,
}


# --- Values -------------------------------------------------------------------------------------


def _text(value: str) -> str:
    if not value:
        raise argparse.ArgumentTypeError("an id must not be empty")
    return value


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error


def _offset(text: str) -> int:
    if not re.fullmatch("[0-9]{1,19}", text) or int(text) >= _INT64:
        raise argparse.ArgumentTypeError(f"{text!r} is no offset: offsets are 0 to 2^63-1")
    return int(text)


def _shift(text: str) -> int:
    if not re.fullmatch("[-+]?[0-9]{1,19}", text) or abs(int(text)) >= _INT64:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rows, such as -100 or 100")
    return int(text)
