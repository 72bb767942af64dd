"""`coordinator groups remove-member|delete|delete-offsets|reset-offsets`: changes of groups."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import grpc

from coordinator.cli import group_rows as rows
from coordinator.cli import log_offsets, reset
from coordinator.cli.flags import WrongUsage
from coordinator.cli.output import Output, complain
from coordinator.cli.partitions import chosen
from coordinator.cli.refusals import (
    advice_of,
    complaint,
    group_names,
    nearest,
    no_such_group,
)
from coordinator.core.values.errors import ErrorCode
from coordinator.observe.spelling import quoted
from coordinator.operator.admin import GroupAdmin
from coordinator.operator.session_admin import GroupNotFound

DONE = ErrorCode.NONE.name
GONE = ErrorCode.UNKNOWN_MEMBER_ID.name


def remove_members(admin: GroupAdmin, options: argparse.Namespace) -> Output:
    """Remove members; a member that `--all` finds gone already is no failure."""
    group = admin.existing_group(options.group)
    by_id = {member.member_id: member for member in group.members}
    by_instance = {m.group_instance_id: m for m in group.members if m.HasField("group_instance_id")}
    named: list[tuple[str, str | None]]
    if options.all:
        static = {member.member_id for member in by_instance.values()}
        named = [("", instance) for instance in by_instance]
        named += [(member_id, None) for member_id in by_id if member_id not in static]
    else:
        named = [(member_id, None) for member_id in dict.fromkeys(options.member_id)]
        named += [("", instance) for instance in dict.fromkeys(options.instance_id)]
    codes = admin.remove_members(options.group, named, options.reason) if named else []
    removed = []
    for (member_id, instance), code in zip(named, codes, strict=True):
        member = by_id.get(member_id) if instance is None else by_instance.get(instance)
        error = None
        if code == GONE and not options.all:
            known = by_id if instance is None else by_instance
            error = _no_such_member(options.group, member_id or str(instance), list(known))
        elif code not in (DONE, GONE):
            error = f"{advice_of(code).capitalize()}."
        removed.append(
            rows.RemovedMemberRow(
                group=options.group,
                consumer_id=member.member_id if member is not None else member_id or None,
                group_instance_id=instance,
                host=member.client_host if member is not None else None,
                client_id=member.client_id or None if member is not None else None,
                error=error,
                error_code=None if error is None else code,
            )
        )
    empty = (
        f"Consumer group {quoted(options.group)} has no members; its state is {group.group_state}."
    )
    notes = ["Members that still run may join again: stop their processes to keep them out."]
    is_done = any(row.error is None for row in removed)
    return Output(rows.RemovedMemberRow, removed, empty=empty, notes=notes if is_done else ())


def _no_such_member(group_id: str, name: str, known: list[str]) -> str:
    there = f"its members are {nearest(name, known)}" if known else "it has none"
    return f"Consumer group {quoted(group_id)} has no member {quoted(name)}; {there}."


def delete(admin: GroupAdmin, options: argparse.Namespace) -> Output:
    """Delete groups, each with a row of its own."""
    deleted: list[rows.DeletedGroupRow] = []
    for group_id in dict.fromkeys(options.group):
        error: str | None = None
        try:
            code: str | None = admin.delete_group(group_id)
        except grpc.RpcError as failure:
            if not deleted:
                raise
            code, error = None, complaint(options, failure)
        except LookupError as failure:  # Nobody coordinates it at present.
            code, error = None, str(failure)
        if code == ErrorCode.GROUP_ID_NOT_FOUND.name:
            error = no_such_group(GroupNotFound(group_id), group_names(admin))
        elif code == ErrorCode.NON_EMPTY_GROUP.name:
            error = f"Consumer group {quoted(group_id)} has members: stop them first."
        elif code not in (None, DONE):
            error = f"Consumer group {quoted(group_id)} is not deleted: {advice_of(code or '')}."
        reported = None if error is None else code
        deleted.append(rows.DeletedGroupRow(group=group_id, error=error, error_code=reported))
    return Output(rows.DeletedGroupRow, deleted)


def delete_offsets(admin: GroupAdmin, options: argparse.Namespace) -> Output:
    """Delete committed offsets of topics that no member reads."""
    admin.existing_group(options.group)
    partitions = chosen(options.topic, admin.offsets(options.group).keys())
    results = admin.delete_offsets(options.group, partitions) if partitions else {}

    def error(topic: str, code: str) -> str | None:
        if code == DONE:
            return None
        if code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC.name:
            return f"Members are subscribed to {quoted(topic)}: stop them first."
        return f"{advice_of(code).capitalize()}."

    deleted = [
        rows.DeletedOffsetRow(
            group=options.group,
            topic=key.topic,
            partition=key.partition,
            error=error(key.topic, code),
            error_code=None if code == DONE else code,
        )
        for key, code in results.items()
    ]
    empty = f"Consumer group {quoted(options.group)} has no committed offsets."
    return Output(rows.DeletedOffsetRow, deleted, empty=empty)


def reset_offsets(admin: GroupAdmin, options: argparse.Namespace) -> Output:
    """Plan new offsets; commit them with `--execute`."""
    if options.export and options.output != "table":
        raise WrongUsage("--export prints CSV: leave --output out")
    if options.from_file is not None and (options.topic or options.all_topics):
        raise WrongUsage("--from-file names the partitions: leave --topic and --all-topics out")
    current = admin.offsets(options.group)
    at_ms = options.to_datetime
    if options.by_duration is not None:
        at_ms = round(time.time() * 1_000) - options.by_duration
    target = reset.Target(
        earliest=options.to_earliest,
        latest=options.to_latest,
        current=options.to_current,
        offset=options.to_offset,
        at_ms=at_ms,
        shift_by=options.shift_by,
        file=options.from_file,
    )
    warnings = list(_warnings(admin, options))
    plan = reset.plan(current, options.topic, target, log_offsets.read_file(options.log_offsets))
    for warning in (*warnings, *plan.notes):
        complain(warning)
    if options.execute:
        reset.execute(admin, options.group, plan.offsets, current)
    new_offsets = [
        rows.NewOffsetRow(
            group=options.group,
            topic=key.topic,
            partition=key.partition,
            current_offset=current.get(key),
            new_offset=offset,
            executed=options.execute,
        )
        for key, offset in plan.offsets.items()
    ]
    text = reset.as_csv(plan.offsets).removesuffix("\n") if options.export else None
    notes = [] if options.execute else ["Dry run: no offset was changed; --execute commits them."]
    return Output(rows.NewOffsetRow, new_offsets, notes=notes, text=text, is_exact=True)


def _warnings(admin: GroupAdmin, options: argparse.Namespace) -> Iterator[str]:
    """Sentences about a group whose offsets cannot be reset at present, or that is new.

    Raises:
        GroupNotFound: there is no such group, and not all partitions are named.
        LookupError: the group has members, and the plan is to be executed.
    """
    try:
        group = admin.existing_group(options.group)
    except GroupNotFound:
        is_named = options.topic and all(topic.partitions for topic in options.topic)
        if options.from_file is None and not is_named:
            raise
        if not options.execute:
            yield f"Consumer group {quoted(options.group)} does not exist: --execute creates it."
        return
    warning = reset.live_warning(options.group, group.group_state, len(group.members))
    if warning is not None:
        if options.execute:
            raise LookupError(warning)
        yield warning


CHANGES: dict[str, Callable[[GroupAdmin, argparse.Namespace], Output]] = {
    "remove-member": remove_members,
    "delete": delete,
    "delete-offsets": delete_offsets,
    "reset-offsets": reset_offsets,
}
