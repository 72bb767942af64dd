"""Validation of commands of any transport: numbers of items, lengths of texts, ranges of values.

Violations name fields as Kafka and the contract do. gRPC also counts the items of a message before
it makes commands of it (`messages`), by the same limits.

The core checks what Kafka answers with an error code: an empty group id, a session timeout out of
bounds, no protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, get_args

from coordinator.core import limits
from coordinator.core.limits import Limit
from coordinator.core.values import requests as c
from coordinator.core.values.requests import SetGroupPolicy
from coordinator.runtime.slices import PART, Work
from coordinator.service.refusals import Malformed, Violation, too_long
from coordinator.settings.sections import LimitsConfig

REASON = limits.REASON.characters
"""Characters of a reason; longer ones are cut, as Kafka's clients do."""


_TEXTS = (
    ("group_id", "group_id", limits.GROUP_ID),
    ("member_id", "member_id", limits.MEMBER_ID),
    ("instance_id", "group_instance_id", limits.INSTANCE_ID),
    ("client_id", "client_id", limits.CLIENT_ID),
    ("member_name", "member_name", limits.INSTANCE_ID),
    ("protocol_type", "protocol_type", limits.PROTOCOL),
    ("protocol_name", "protocol_name", limits.PROTOCOL),
    ("contains", "group_id_contains", limits.PART_OF_ID),
    ("prefix", "prefix", limits.DOCUMENT_NAME),
)
"""Texts of commands: the attribute, the field, its limit."""
_ITEMS = (
    ("protocols", "protocols", limits.PROTOCOLS),
    ("assignments", "assignments", limits.MEMBERS),
    ("members", "members", limits.MEMBERS),
    ("partitions", "topics.partitions", limits.PARTITIONS),
    ("ends", "topics.partitions", limits.PARTITIONS),
    ("states", "states_filter", limits.FILTER),
    ("types", "types_filter", limits.FILTER),
    ("defaults", "defaults", limits.SETTINGS),
    ("documents", "documents", limits.DOCUMENTS),
)
_NAMES: dict[type, set[str]] = {
    kind: {f.name for f in fields(kind)} for kind in get_args(c.Request)
}
_OF_GROUPS = {c.DescribeGroup: "groups", c.DeleteGroup: "groups_names"}
"""Commands of which a call has one for each group, and the field that lists the groups."""
_STORED = {
    c.JoinGroup: {"group_id", "member_id", "instance_id", "client_id", "protocol_type"},
    c.SyncGroup: {"group_id", "member_id", "instance_id"},
    c.LeaveGroup: {"group_id"},
    c.CommitOffsets: {"group_id", "member_id", "instance_id"},
    c.ReportLogEnds: {"group_id", "member_id", "instance_id"},
    c.PutDocuments: {"group_id"},
}
"""Texts that may be stored or shown, and so must not contain NUL."""
_TEXTS_OF = {
    kind: [(*row, row[0] in _STORED.get(kind, ())) for row in _TEXTS if row[0] in names]
    for kind, names in _NAMES.items()
}
_ITEMS_OF = {kind: [row for row in _ITEMS if row[0] in names] for kind, names in _NAMES.items()}
"""Rows by kind of command; computed once, which saves each join 5 us."""
_SHORT = min(text.characters for _, _, text in _TEXTS)
"""Texts that have so many characters together are not too long."""
# With one name `attrgetter` returns no tuple, so the last one is there twice.
_ALL_TEXTS = {
    kind: attrgetter(*(row[0] for row in rows), rows[-1][0]) if rows else lambda _: ()
    for kind, rows in _TEXTS_OF.items()
}


class CommandValidator:
    """Limits of commands, with the values of the settings."""

    def __init__(self, config: LimitsConfig) -> None:
        self._config = config

    def check(self, requests: Sequence[c.Request]) -> Work[Sequence[c.Request]]:
        """Validate the commands of a call, a slice at a time.

        Returns:
            The requests, with reasons cut to `REASON` characters.
        Raises:
            Malformed: with the fields.
        """
        if requests and (field := _OF_GROUPS.get(type(requests[0]))):
            self.check_groups(field, [getattr(request, "group_id", "") for request in requests])
            return requests
        for request in requests:
            kind = type(request)
            for attribute, name, items in _ITEMS_OF[kind]:
                if value := getattr(request, attribute):
                    self.check_count(name, len(value), items)
            wrong = _texts(request)
            if (parts := _PARTS.get(kind)) is not None:
                for number, violation in enumerate(parts(request), 1):
                    if violation is not None:
                        wrong.append(violation)
                    if not number % PART:
                        yield
            if wrong:
                raise Malformed(wrong)
        return [_with_short_reasons(request) for request in requests]

    def check_groups(self, field: str, group_ids: Sequence[str]) -> None:
        """Validate the length of a list of groups and of each id.

        Raises:
            Malformed: with the fields.
        """
        self.check_count(field, len(group_ids), limits.GROUPS)
        violations = (
            too_long(f"{field}[{n}]", group, limits.GROUP_ID) for n, group in enumerate(group_ids)
        )
        if wrong := [violation for violation in violations if violation is not None]:
            raise Malformed(wrong)

    def check_count(self, field: str, count: int, items: Limit) -> None:
        """Validate the number of items of a field.

        Raises:
            Malformed: with the field.
        """
        if count > items.items_by(self._config):
            raise Malformed([Violation(field, items.words(self._config))])


def check_heartbeat(request: c.Heartbeat) -> None:
    """Validate the texts of a heartbeat.

    Raises:
        Malformed: with the fields.
    """
    if wrong := _texts(request):
        raise Malformed(wrong)


def _texts(request: c.Request) -> list[Violation]:
    texts = "".join(filter(None, _ALL_TEXTS[type(request)](request)))
    if len(texts) <= _SHORT and "\0" not in texts and getattr(request, "instance_id", None) != "":
        return []
    wrong = []
    for attribute, field, text, is_stored in _TEXTS_OF[type(request)]:
        value = getattr(request, attribute)
        if not value:
            # A static member has a name.
            if value is not None and attribute == "instance_id":
                wrong.append(Violation(field, _EMPTY_INSTANCE))
        elif len(value) > text.characters:
            wrong.append(Violation(field, text.words()))
        elif is_stored and "\0" in value:
            wrong.append(Violation(field, "must not contain NUL"))
    return wrong


_EMPTY_INSTANCE = "must not be empty: leave it out"
Parts = Iterable[Violation | None]
"""One violation or None for each item of a request, so that a slice can end after any of them."""


def _of_join(request: c.JoinGroup) -> Parts:
    if request.session_timeout_ms < 0:
        yield Violation("session_timeout_ms", "must not be negative")
    if request.rebalance_timeout_ms < 0:
        yield Violation("rebalance_timeout_ms", "must not be negative")
    seen: set[str] = set()
    for index, (name, _) in enumerate(request.protocols):
        field = f"protocols[{index}].name"
        if not name:
            yield Violation(field, "must not be empty")
        elif name in seen:
            yield Violation(field, "is listed twice")
        else:
            yield too_long(field, name, limits.PROTOCOL)
        seen.add(name)


def _of_sync(request: c.SyncGroup) -> Parts:
    seen: set[str] = set()
    for index, (member_id, _) in enumerate(request.assignments):
        if member_id in seen:
            yield Violation(f"assignments[{index}].member_id", "has an assignment already")
        else:
            yield too_long(f"assignments[{index}].member_id", member_id, limits.MEMBER_ID)
        seen.add(member_id)


def _of_leave(request: c.LeaveGroup) -> Parts:
    for index, member in enumerate(request.members):
        instance_id, field = member.instance_id, f"members[{index}].group_instance_id"
        yield too_long(f"members[{index}].member_id", member.member_id, limits.MEMBER_ID)
        if instance_id is not None:
            wrong = None if instance_id else Violation(field, _EMPTY_INSTANCE)
            yield wrong or too_long(field, instance_id, limits.INSTANCE_ID)


def _of_commit(request: c.CommitOffsets) -> Parts:
    seen: set[tuple[str, int]] = set()
    topic, t, p = None, -1, 0
    for commit in request.partitions:
        if commit.topic != topic:
            topic, t, p = commit.topic, t + 1, 0
            yield too_long(f"topics[{t}].name", topic, limits.TOPIC)
        key = (topic, commit.partition)
        if commit.partition < 0 or key in seen:
            reason = "must not be negative" if commit.partition < 0 else "is committed twice"
            yield Violation(f"topics[{t}].partitions[{p}].partition_index", reason)
        if commit.offset < 0:
            path = f"topics[{t}].partitions[{p}].committed_offset"
            yield Violation(path, "must not be negative")
        seen.add(key)
        p += 1
        yield None


def _of_topics(partitions: Iterable[tuple[str, int]]) -> Parts:
    topic, t = None, -1
    for name, _ in partitions:
        if name != topic:
            topic, t = name, t + 1
            yield too_long(f"topics[{t}].name", name, limits.TOPIC)
        else:
            yield None


def _of_list(request: c.ListGroups) -> Parts:
    for index, state in enumerate(request.states):
        yield too_long(f"states_filter[{index}]", state, limits.STATE)
    for index, kind in enumerate(request.types):
        yield too_long(f"types_filter[{index}]", kind, limits.TYPE)


def _of_documents(request: c.PutDocuments) -> Parts:
    seen: set[str] = set()
    for index, document in enumerate(request.documents):
        field = f"documents[{index}].name"
        if not document.name or document.name in seen:
            yield Violation(field, "is written twice" if document.name else "must not be empty")
        elif "\0" in document.name:
            yield Violation(field, "must not contain NUL")
        else:
            yield too_long(field, document.name, limits.DOCUMENT_NAME)
        seen.add(document.name)


def _of_policy(request: SetGroupPolicy) -> Parts:
    for index, name in enumerate(request.defaults):
        yield too_long(f"defaults[{index}]", name, limits.SETTING)


# Any: each function takes the request of its row.
_PARTS: dict[type[c.Request], Callable[[Any], Parts]] = {
    c.JoinGroup: _of_join,
    c.SyncGroup: _of_sync,
    c.LeaveGroup: _of_leave,
    c.CommitOffsets: _of_commit,
    c.FetchOffsets: lambda request: _of_topics(request.partitions or ()),
    c.DeleteOffsets: lambda request: _of_topics(request.partitions),
    c.ReportLogEnds: lambda request: _of_topics(end[:2] for end in request.ends),
    c.PutDocuments: _of_documents,
    c.ListGroups: _of_list,
    SetGroupPolicy: _of_policy,
}


def _with_short_reasons(request: c.Request) -> c.Request:
    if isinstance(request, c.JoinGroup) and len(request.reason) > REASON:
        return replace(request, reason=request.reason[:REASON])
    if isinstance(request, c.LeaveGroup) and any(len(m.reason) > REASON for m in request.members):
        members = tuple(replace(m, reason=m.reason[:REASON]) for m in request.members)
        return replace(request, members=members)
    return request
