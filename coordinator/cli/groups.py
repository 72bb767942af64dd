"""`coordinator groups`, with the columns and terms of Kafka's own tool."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from coordinator.assignors import TopicPartition
from coordinator.assignors.consumer_protocol import partitions_in
from coordinator.cli import log_offsets, reset
from coordinator.cli.connection import add_common_flags, credentials_of
from coordinator.cli.output import Row, show
from coordinator.cli.parser import add_actions
from coordinator.client.admin import GroupAdmin

ABSENT = "-"
OWNER = ("CONSUMER-ID", "HOST", "CLIENT-ID")
_TOPIC_HELP = "partitions; repeatable (default: every partition with a committed offset)"
Action = Callable[[GroupAdmin, argparse.Namespace], list[Row]]


def add_parsers(commands: Any) -> None:  # Any: argparse does not name its type.
    """The actions and their flags."""
    text = "list, describe and change groups and their offsets"
    actions = add_actions(commands.add_parser("groups", help=text, description=text))
    for name, text, action in (
        ("list", "list all groups", _list),
        ("state", "show a group's state", _state),
        ("describe", "show a group's partitions: offsets, lag and owners", _describe),
        ("members", "list a group's members", _members),
        ("offsets", "list a group's committed offsets", _offsets),
        ("delete", "delete a group that has no members", _delete),
        (
            "delete-offsets",
            "delete committed offsets of partitions that no member reads",
            _delete_offsets,
        ),
        ("reset-offsets", "reset a group's offsets; a dry run unless --execute is given", _reset),
    ):
        command = actions.add_parser(name, help=text, description=text)
        command.set_defaults(run=run, action=action)
        if name != "list":
            command.add_argument("group", help="group id")
        add_common_flags(command)
        if name == "list":
            for filtered, example in (("state", "Stable"), ("type", "classic")):
                command.add_argument(
                    f"--{filtered}",
                    action="append",
                    default=[],
                    metavar=example,
                    help=f"list only groups of this {filtered}; repeatable",
                )
        if name == "members":
            command.add_argument("--verbose", action="store_true", help="show assignments")
        if name in ("delete-offsets", "reset-offsets"):
            command.add_argument(
                "--topic", action="append", default=[], metavar="TOPIC[:0,1,2]", help=_TOPIC_HELP
            )
        if name in ("describe", "reset-offsets"):
            command.add_argument(
                "--log-offsets",
                type=Path,
                metavar="CSV",
                help="file with the begin and end offsets of the logs; columns: "
                "topic,partition,offset,timestamp_ms",
            )
        if name == "reset-offsets":
            _add_reset_flags(command)


def _add_reset_flags(command: argparse.ArgumentParser) -> None:
    target = command.add_mutually_exclusive_group(required=True)
    options: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("--to-earliest", "first offset of each log", {"action": "store_true"}),
        ("--to-latest", "end of each log; needs --log-offsets", {"action": "store_true"}),
        ("--to-offset", "this offset", {"type": int, "metavar": "N"}),
        (
            "--to-datetime",
            "first offset written at this time or later; needs --log-offsets",
            {"type": _time, "metavar": "YYYY-MM-DDTHH:MM:SS[+HH:MM]"},
        ),
        ("--shift-by", "committed offset plus N", {"type": int, "metavar": "N"}),
        ("--from-file", "lines of TOPIC,PARTITION,OFFSET", {"type": Path, "metavar": "CSV"}),
    )
    for flag, meaning, how in options:
        target.add_argument(flag, help=meaning, **how)
    act = command.add_mutually_exclusive_group()
    act.add_argument("--dry-run", action="store_true", help="print the new offsets (default)")
    act.add_argument("--execute", action="store_true", help="commit the new offsets")


def run(options: argparse.Namespace) -> int:
    """Run an action and print its rows; the exit status."""
    with GroupAdmin(options.bootstrap, credentials=credentials_of(options)) as admin:
        return show(options, lambda: options.action(admin, options))


# --- Actions ------------------------------------------------------------------------------------


def _list(admin: GroupAdmin, options: argparse.Namespace) -> list[Row]:
    return [
        {
            "GROUP": group.group_id,
            "TYPE": group.group_type,
            "PROTOCOL": group.protocol_type or ABSENT,
            "STATE": group.group_state,
            "#MEMBERS": str(group.member_count),
        }
        for group in admin.list_groups(options.state, options.type)
    ]


def _state(admin: GroupAdmin, options: argparse.Namespace) -> list[Row]:
    group = admin.existing_group(options.group)
    return [
        {
            "GROUP": group.group_id,
            "COORDINATOR": admin.coordinator_of(options.group),
            "ASSIGNMENT-STRATEGY": group.protocol_data or ABSENT,
            "STATE": group.group_state,
            "#MEMBERS": str(len(group.members)),
        }
    ]


def _describe(admin: GroupAdmin, options: argparse.Namespace) -> list[Row]:
    group = admin.existing_group(options.group)
    ends = admin.log_ends(options.group)
    logs = log_offsets.read_file(options.log_offsets)
    ends |= {key: logs.latest(key) for key in logs.rows}
    offsets = admin.offsets(options.group)
    owners = {}
    for member in group.members:
        for partition in partitions_in(member.member_assignment) or ():
            owners[partition] = (member.member_id, member.client_host, member.client_id)
    rows = []
    for key in sorted(owners.keys() | offsets.keys()):
        current = offsets.get(key)
        end = ends.get(key)
        # Ends are reported now and then, so an offset may be ahead of its log's.
        lag = None if end is None else max(0, end - (current or 0))
        rows.append(
            {
                "GROUP": options.group,
                "TOPIC": key.topic,
                "PARTITION": str(key.partition),
                "CURRENT-OFFSET": ABSENT if current is None else str(current),
                "LOG-END-OFFSET": ABSENT if end is None else str(end),
                "LAG": ABSENT if lag is None else str(lag),
                **dict(zip(OWNER, owners.get(key, (ABSENT,) * 3), strict=True)),
            }
        )
    return rows


def _members(admin: GroupAdmin, options: argparse.Namespace) -> list[Row]:
    rows = []
    for member in admin.existing_group(options.group).members:
        owned = partitions_in(member.member_assignment)
        row = {
            "GROUP": options.group,
            "CONSUMER-ID": member.member_id,
            "GROUP-INSTANCE-ID": member.group_instance_id or ABSENT,
            "HOST": member.client_host,
            "CLIENT-ID": member.client_id,
            "#PARTITIONS": ABSENT if owned is None else str(len(owned)),
        }
        if options.verbose:
            row["ASSIGNMENT"] = _spelled(owned)
        rows.append(row)
    return rows


def _offsets(admin: GroupAdmin, options: argparse.Namespace) -> list[Row]:
    stored = sorted(admin.offsets(options.group).items())
    return [
        {
            "GROUP": options.group,
            "TOPIC": key.topic,
            "PARTITION": str(key.partition),
            "CURRENT-OFFSET": str(offset),
        }
        for key, offset in stored
    ]


def _delete(admin: GroupAdmin, options: argparse.Namespace) -> list[Row]:
    error = admin.delete_group(options.group)
    if error != "NONE":
        raise LookupError(f"Group '{options.group}' could not be deleted: {error}.")
    return [{"GROUP": options.group, "DELETED": "yes"}]


def _delete_offsets(admin: GroupAdmin, options: argparse.Namespace) -> list[Row]:
    partitions = reset.chosen(options.topic, set(admin.offsets(options.group)))
    results = admin.delete_offsets(options.group, partitions)
    return [
        {
            "GROUP": options.group,
            "TOPIC": key.topic,
            "PARTITION": str(key.partition),
            "STATUS": status,
        }
        for key, status in results.items()
    ]


def _reset(admin: GroupAdmin, options: argparse.Namespace) -> list[Row]:
    current = admin.offsets(options.group)
    target = reset.Target(
        earliest=options.to_earliest,
        latest=options.to_latest,
        offset=options.to_offset,
        when=options.to_datetime,
        shift_by=options.shift_by,
        file=options.from_file,
    )
    logs = log_offsets.read_file(options.log_offsets)
    new = reset.plan(current, options.topic, target, logs)
    if options.execute:
        reset.execute(admin, options.group, new, current)
    return [
        {
            "GROUP": options.group,
            "TOPIC": key.topic,
            "PARTITION": str(key.partition),
            "NEW-OFFSET": str(offset),
        }
        for key, offset in new.items()
    ]


# --- Formats ------------------------------------------------------------------------------------


def _spelled(owned: tuple[TopicPartition, ...] | None) -> str:
    """An assignment as Kafka's tool writes it: `t(0,1), u(2)`."""
    if not owned:
        return ABSENT
    topics: dict[str, list[int]] = {}
    for key in owned:
        topics.setdefault(key.topic, []).append(key.partition)
    return ", ".join(f"{topic}({','.join(map(str, sorted(n)))})" for topic, n in topics.items())


def _time(text: str) -> datetime:
    """A point in time; without a zone, in local time."""
    return datetime.fromisoformat(text).astimezone()
