"""`coordinator groups list|state|describe|members|offsets`: what groups are like at present."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from coordinator.cli import group_rows as rows
from coordinator.cli import log_offsets
from coordinator.cli.flags import WrongUsage
from coordinator.cli.group_views import (
    GroupView,
    member_rows,
    partition_rows,
    sentences,
    short_logs,
    summary_row,
)
from coordinator.cli.output import Output, complain
from coordinator.cli.refusals import group_names, nearest, no_such_group
from coordinator.observe.spelling import quoted
from coordinator.operator.admin import GroupAdmin, GroupDescription
from coordinator.operator.session_admin import GroupNotFound

# --- Actions ------------------------------------------------------------------------------------


def list_groups(admin: GroupAdmin, options: argparse.Namespace) -> Output:
    """All groups, or those of some states and types."""
    states, types = (
        tuple(n for ns in option for n in ns) for option in (options.state, options.type)
    )
    listed = [
        rows.GroupRow(
            group=group.group_id,
            type=group.group_type,
            protocol=group.protocol_type or None,
            state=group.group_state,
            members=group.member_count,
        )
        for group in admin.list_groups(states, types)
    ]
    empty = f"No group is {' or '.join((*states, *types))}." if states or types else NO_GROUPS
    return Output(rows.GroupRow, listed, empty=empty)


def describe(admin: GroupAdmin, options: argparse.Namespace) -> Output:
    """Partitions with offsets, lag and owners; members without partitions too."""
    if options.summary:
        return state(admin, options)
    selected = _selected(admin, options)
    logs = log_offsets.read_file(options.log_offsets)
    views = [GroupView.of(admin, group) for group in selected.groups]
    listed = [row for view in views for row in partition_rows(admin, view, logs)]
    notes = [note for view in views for note in sentences(view)]
    notes += short_logs(listed)
    if listed and [group.group_state for group in selected.groups] == ["Empty"]:
        notes.append(f"Consumer group {quoted(listed[0].group)} has no active members.")
    return Output(
        _showing(rows.PartitionRow, rows.SessionPartitionRow, views, listed),
        listed,
        empty=selected.words("has no members and no committed offsets"),
        notes=notes,
        has_failed=selected.is_partial,
    )


def state(admin: GroupAdmin, options: argparse.Namespace) -> Output:
    """A row for each group: state, assignor, members, lag."""
    selected = _selected(admin, options)
    logs = log_offsets.read_file(getattr(options, "log_offsets", None))
    views = [GroupView.of(admin, group) for group in selected.groups]
    listed = [summary_row(admin, view, logs) for view in views]
    notes = [note for view in views for note in sentences(view)]
    unknown = sum(row.partitions_without_lag for row in listed)
    if unknown:
        notes.append(f"TOTAL-LAG leaves out {unknown} partitions: no end of their logs is known.")
    return Output(
        rows.GroupSummaryRow, listed, empty=NO_GROUPS, notes=notes, has_failed=selected.is_partial
    )


def members(admin: GroupAdmin, options: argparse.Namespace) -> Output:
    """Members, and the ids of those that are about to join."""
    selected = _selected(admin, options)
    views = [GroupView.of(admin, group) for group in selected.groups]
    listed = [row for view in views for row in member_rows(view)]
    shown = ["assignment"] if options.verbose else []
    return Output(
        _showing(rows.MemberRow, rows.SessionMemberRow, views, listed, *shown),
        listed,
        empty=selected.words("has no members"),
        notes=[note for view in views for note in sentences(view)],
        has_failed=selected.is_partial,
    )


def _showing(
    kind: type,
    session_kind: type,
    views: Sequence[GroupView],
    listed: Sequence[rows.PartitionRow | rows.MemberRow],
    *shown: str,
) -> type:
    """The kind of rows, with the further columns that the groups call for."""
    further = [*shown, *_further(views, listed)]
    if any(view.session for view in views):
        kind = session_kind
        further += SESSION_COLUMNS[kind]
    return rows.showing(kind, *further)


def _further(
    views: Sequence[GroupView], listed: Sequence[rows.PartitionRow | rows.MemberRow]
) -> Iterator[str]:
    """Columns that Kafka's tool does not have, where they say something."""
    if any(row.client_software for row in listed):
        yield "client_software"
    if any(view.phase for view in views):
        yield from ("state", "waited_for")


def offsets(admin: GroupAdmin, options: argparse.Namespace) -> Output:
    selected = _selected(admin, options)
    listed = [
        rows.OffsetRow(
            group=group.group_id, topic=key.topic, partition=key.partition, current_offset=offset
        )
        for group in selected.groups
        for key, offset in sorted(admin.offsets(group.group_id).items())
    ]
    empty = selected.words("has no committed offsets")
    return Output(rows.OffsetRow, listed, empty=empty, has_failed=selected.is_partial)


SESSION_COLUMNS = {
    rows.SessionPartitionRow: ("token", "phase", "successor_id"),
    rows.SessionMemberRow: ("status", "lease_ms"),
}
"""Columns of the tables of session groups."""
READS: dict[str, Callable[[GroupAdmin, argparse.Namespace], Output]] = {
    "list": list_groups,
    "state": state,
    "describe": describe,
    "members": members,
    "offsets": offsets,
}
NO_GROUPS = "There are no groups."


# --- Groups -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Selected:
    """Groups that exist. `is_partial`: others that were named do not."""

    groups: list[GroupDescription]
    is_partial: bool = False

    def words(self, subject: str) -> str:
        """The sentence for no rows."""
        if not self.groups:
            return NO_GROUPS
        if len(self.groups) > 1:
            return f"None of the {len(self.groups)} groups {subject.replace('has no', 'has', 1)}."
        group = self.groups[0]
        return (
            f"Consumer group {quoted(group.group_id)} {subject}; its state is {group.group_state}."
        )


def _selected(admin: GroupAdmin, options: argparse.Namespace) -> _Selected:
    """Groups that the options select.

    Raises:
        WrongUsage: none or too many ways of selecting.
        LookupError: none of the groups that are named exists, or none matches.
    """
    ways = [bool(options.group), options.all, options.regex is not None]
    if sum(ways) != 1:
        raise WrongUsage("name one or more groups, or give either --all or --regex PATTERN")
    names, selected, missing = _names(admin, options), [], []
    for name in names:
        try:
            selected.append(admin.existing_group(name))
        except GroupNotFound as error:
            if options.group:  # Others have been deleted since they were listed.
                missing.append(error)
    last = missing.pop() if missing and not selected else None
    known = group_names(admin) if missing else None
    for group_id in missing:
        complain(no_such_group(group_id, known))
    if last is not None:
        raise last
    return _Selected(selected, is_partial=bool(missing))


def _names(admin: GroupAdmin, options: argparse.Namespace) -> Iterable[str]:
    if options.group:
        return dict.fromkeys(options.group)
    listed = [group.group_id for group in admin.list_groups()]
    if options.regex is None:
        return listed
    matching = [name for name in listed if options.regex.search(name)]
    if not matching:
        pattern = options.regex.pattern
        there = f"the groups are {nearest(pattern, listed)}" if listed else "there are no groups"
        raise LookupError(f"No group matches '{pattern}'; {there}.")
    return matching
