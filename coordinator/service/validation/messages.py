"""Most items of every repeated field of every message of the contract.

The contract says them itself, by an option of each field (`limits.proto`). They are counted once
the message is parsed: `max_message_bytes` bounds what parsing costs, 35 ms of CPU per MiB at worst.
The pipeline checks how long texts are.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from coordinator.core import limits
from coordinator.core.limits import Limit
from coordinator.service.refusals import Violation
from coordinator.settings.sections import LimitsConfig
from coordinator.v1 import limits_pb2

_PREFIX = "LIMIT_"


def limits_of(field: FieldDescriptor) -> tuple[Limit, ...]:
    """Limits of a repeated field or a text of a request: of a repeated text two, the number of
    items and the length of each.

    Raises:
        KeyError: the field has none.
    """
    numbers = field.GetOptions().Extensions[limits_pb2.limits]
    if not numbers:
        raise KeyError(field.full_name)
    names = [limits_pb2.Limit.Name(number).removeprefix(_PREFIX) for number in numbers]
    return tuple(getattr(limits, name) for name in names)


@dataclass(frozen=True, slots=True)
class Repeated:
    """A repeated field of a message. `inside`: the plan of its items, if they are messages."""

    name: str
    most: int
    words: str
    inside: LimitPlan | None


@dataclass(frozen=True, slots=True)
class LimitPlan:
    """Limits of one kind of message.

    singles: single messages with repeated fields inside, such as the parts of a oneof.
    """

    repeated: tuple[Repeated, ...]
    singles: tuple[tuple[str, LimitPlan], ...]
    free_bytes: int
    """A message of so many bytes cannot hold too many items."""


class MessageLimits:
    """Limits with the values of the settings."""

    def __init__(self, config: LimitsConfig) -> None:
        self._config = config
        self._plans: dict[str, LimitPlan] = {}

    def plan(self, kind: Any) -> LimitPlan:  # Any: a Descriptor; its stubs have two.
        """Limits of a kind of message.

        Raises:
            KeyError: a repeated field of it has no limit.
        """
        plan = self._plans.get(kind.full_name)
        if plan is None:
            plan = self._plans[kind.full_name] = self._plan_of(kind)
        return plan

    def counts(self, message: Any) -> list[Violation]:
        """Violations by repeated fields that have too many items. Items of nested repeated fields
        are counted over the whole message."""
        return _too_many(message, self.plan(message.DESCRIPTOR), "")

    # --- Inside ---

    def _plan_of(self, kind: Any) -> LimitPlan:
        repeated, singles = [], []
        for field in kind.fields:
            if field.is_repeated:
                repeated.append(self._repeated(field))
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                part = self.plan(field.message_type)
                if part.repeated or part.singles:
                    singles.append((field.name, part))
        # An item is two bytes or more, but for packed numbers.
        most = [one.most for one in repeated]
        most += [one.inside.free_bytes for one in repeated if one.inside is not None]
        most += [part.free_bytes for _, part in singles]
        return LimitPlan(tuple(repeated), tuple(singles), min(most, default=sys.maxsize))

    def _repeated(self, field: FieldDescriptor) -> Repeated:
        (limit,) = (one for one in limits_of(field) if one.items)
        is_message = field.type == FieldDescriptor.TYPE_MESSAGE
        return Repeated(
            field.name,
            limit.items_by(self._config),
            limit.words(self._config),
            inside=self.plan(field.message_type) if is_message else None,
        )


def _too_many(message: Any, plan: LimitPlan, path: str) -> list[Violation]:
    wrong = [
        Violation(path + repeated.name, repeated.words)
        for repeated in plan.repeated
        if len(getattr(message, repeated.name)) > repeated.most
    ]
    if wrong:
        return wrong
    for repeated in plan.repeated:
        for inner in repeated.inside.repeated if repeated.inside is not None else ():
            total = sum(len(getattr(item, inner.name)) for item in getattr(message, repeated.name))
            if total > inner.most:
                wrong.append(Violation(f"{path}{repeated.name}.{inner.name}", inner.words))
    for name, part in plan.singles:
        if message.HasField(name):
            wrong += _too_many(getattr(message, name), part, f"{path}{name}.")
    return wrong
