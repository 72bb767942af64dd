"""Limits of every repeated field and every text of every message of the contract.

The contract says them itself, by an option of each field (`limits.proto`); `OTHERS` has those of
health and reflection. `MessageLimits.counts` counts the items of a parsed message; `wire_counts`
counts them in the bytes, before anything is parsed. How long texts are is checked by the pipeline,
but for those of health and reflection, which it does not see.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from coordinator.core import limits
from coordinator.service.bounds import Check, Items, Text, check_of
from coordinator.service.refusals import Malformed, Violation
from coordinator.settings.sections import LimitsConfig
from coordinator.v1 import limits_pb2

_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


_WORD = 255
"""Characters of names of services, files and symbols."""
_OURS = "coordinator.v1"
OTHERS: dict[str, Check] = {
    "service": Text(_WORD, "the name of a service"),
    "host": Text(_WORD, "the name of a host"),
    "file_by_filename": Text(_WORD, "a file's name"),
    "file_containing_symbol": Text(_WORD, "a symbol"),
    "all_extension_numbers_of_type": Text(_WORD, "the name of a type"),
    "list_services": Text(_WORD, "is not looked at"),
    "containing_type": Text(_WORD, "the name of a type"),
}
"""Limits of messages that are not ours, by the field's name."""
_PREFIX = "LIMIT_"


def limits_of(field: Any) -> tuple[Check, ...]:  # Any: a FieldDescriptor; its stubs lack `file`.
    """Limits of a repeated field or a text of a request: of a repeated text two, the number of
    items and the length of each.

    Raises:
        KeyError: the field has none.
    """
    if field.file.package != _OURS:
        return (OTHERS[field.name],)
    numbers = field.GetOptions().Extensions[limits_pb2.limits]
    if not numbers:
        raise KeyError(field.full_name)
    names = [limits_pb2.Limit.Name(number).removeprefix(_PREFIX) for number in numbers]
    return tuple(check_of(getattr(limits, name)) for name in names)


@dataclass(frozen=True, slots=True)
class Repeated:
    """A repeated field of a message. `inside`: the plan of its items, if they are messages."""

    name: str
    number: int
    most: int
    words: str
    is_packable: bool
    inside: Plan | None


@dataclass(frozen=True, slots=True)
class Single:
    """A single message inside another one, with repeated fields in it."""

    name: str
    number: int
    inside: Plan


@dataclass(frozen=True, slots=True)
class Plan:
    """Limits of one kind of message. `texts`: those that the pipeline does not check.

    singles: single messages with repeated fields inside, such as the parts of a oneof.
    """

    texts: tuple[tuple[str, Text], ...]
    parts: tuple[tuple[str, Plan], ...]
    repeated: tuple[Repeated, ...]
    singles: tuple[Single, ...]
    free_bytes: int
    """A message of so many bytes cannot hold too many items."""

    @property
    def has_texts(self) -> bool:
        """True if the message, or one inside it, has such texts."""
        return bool(self.texts or self.parts)

    @property
    def has_items(self) -> bool:
        """True if the message, or one inside it, has repeated fields."""
        return bool(self.repeated or self.singles)


class MessageLimits:
    """Limits with the values of the settings."""

    def __init__(self, config: LimitsConfig) -> None:
        self._config = config
        self._plans: dict[str, Plan] = {}

    def plan(self, kind: Any) -> Plan:  # Any: a Descriptor; its stubs have two.
        """Limits of a kind of message.

        Raises:
            KeyError: a field of it has no limit.
        """
        found = self._plans.get(kind.full_name)
        if found is None:
            found = self._plans[kind.full_name] = self._plan_of(kind)
        return found

    def counts(self, message: Any) -> list[Violation]:
        """Violations by repeated fields that have too many items. Items of nested repeated fields
        are counted over the whole message."""
        return _too_many(message, self.plan(message.DESCRIPTOR), "")

    def check_texts(self, message: Message) -> None:
        """Refuse a message of health or reflection with a text that is too long.

        Raises:
            Malformed: with the fields.
        """
        plan = self.plan(message.DESCRIPTOR)
        if plan.has_texts and (wrong := list(_long_texts(message, plan, ""))):
            raise Malformed(wrong)

    # --- Inside ---

    def _plan_of(self, kind: Any) -> Plan:
        texts, parts, repeated, singles = [], [], [], []
        for field in kind.fields:
            if field.is_repeated:
                repeated.append(self._repeated(field))
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                part = self.plan(field.message_type)
                if part.has_texts:
                    parts.append((field.name, part))
                if part.has_items:
                    singles.append(Single(field.name, field.number, part))
            elif field.type in _TEXTS:
                (limit,) = limits_of(field)
                if isinstance(limit, Text) and kind.file.package != _OURS:
                    texts.append((field.name, limit))
        # An item is two bytes or more, but for packed numbers, and texts are checked elsewhere.
        most = [each.most for each in repeated]
        most += [
            each.inside.free_bytes for each in repeated if each.inside and each.inside.has_items
        ]
        most += [each.inside.free_bytes for each in singles]
        free_bytes = min(most, default=sys.maxsize)
        return Plan(tuple(texts), tuple(parts), tuple(repeated), tuple(singles), free_bytes)

    def _repeated(self, field: FieldDescriptor) -> Repeated:
        (limit,) = (x for x in limits_of(field) if isinstance(x, Items))
        is_message = field.type == FieldDescriptor.TYPE_MESSAGE
        return Repeated(
            field.name,
            field.number,
            limit.within(self._config),
            limit.words(self._config),
            is_packable=not is_message and field.type not in _TEXTS,
            inside=self.plan(field.message_type) if is_message else None,
        )


def _too_many(message: Any, plan: Plan, path: str) -> list[Violation]:
    wrong = [
        Violation(path + each.name, each.words)
        for each in plan.repeated
        if len(getattr(message, each.name)) > each.most
    ]
    if wrong:
        return wrong
    for each in plan.repeated:
        for inner in each.inside.repeated if each.inside is not None else ():
            total = sum(len(getattr(item, inner.name)) for item in getattr(message, each.name))
            if total > inner.most:
                wrong.append(Violation(f"{path}{each.name}.{inner.name}", inner.words))
    for single in plan.singles:
        if message.HasField(single.name):
            part = getattr(message, single.name)
            wrong += _too_many(part, single.inside, f"{path}{single.name}.")
    return wrong


def _long_texts(message: Any, plan: Plan, path: str) -> Iterator[Violation]:
    for name, text in plan.texts:
        if len(getattr(message, name)) > text.most:
            yield Violation(path + name, text.words)
    for name, part in plan.parts:
        if message.HasField(name):
            yield from _long_texts(getattr(message, name), part, f"{path}{name}.")
