"""Limits of fields: numbers of items, lengths of texts. The numbers are the contract's.

With the defaults, a message at its limits costs the event loop less than 100 ms of CPU, also where
its work cannot be done in slices; `poe bench messages` measures it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from coordinator.core import limits
from coordinator.core.limits import Limit
from coordinator.service.refusals import Violation
from coordinator.settings.sections import LimitsConfig


@dataclass(frozen=True, slots=True)
class Items:
    """Limit of a repeated field: items in a whole message, also if it is inside another one.

    setting: the setting that replaces `most`, where users may need more.
    """

    most: int
    why: str
    setting: str = ""

    def within(self, config: LimitsConfig) -> int:
        """Items in force."""
        return int(getattr(config, self.setting)) if self.setting else self.most

    def words(self, config: LimitsConfig) -> str:
        """Description of the violation."""
        hint = f" ({self.setting})" if self.setting else ""
        return f"at most {self.within(config)} may be listed in one call{hint}"


@dataclass(frozen=True, slots=True)
class TextLimit:
    """Limit of a text, in characters."""

    most: int
    why: str

    @property
    def words(self) -> str:
        """Description of the violation."""
        return f"must not be longer than {self.most} characters"

    def violation(self, field: str, value: str) -> Violation | None:
        """The violation of a value that is too long."""
        return Violation(field, self.words) if len(value) > self.most else None


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A limit that is checked elsewhere: the setting or number, and the error beyond it."""

    limit: str
    answer: str


Check: TypeAlias = Items | TextLimit | Elsewhere


def check_of(limit: Limit) -> Check:
    """The check that a limit of the contract asks for."""
    if limit.beyond:
        return Elsewhere(limit.setting or str(limit.characters), limit.beyond)
    return _items(limit) if limit.items else _text(limit)


def _text(limit: Limit) -> TextLimit:
    return TextLimit(limit.characters, limit.why)


def _items(limit: Limit) -> Items:
    return Items(limit.items, limit.why, limit.setting)


GROUP_ID = _text(limits.GROUP_ID)
MEMBER_ID = _text(limits.MEMBER_ID)
INSTANCE_ID = _text(limits.INSTANCE_ID)
TOPIC = _text(limits.TOPIC)
CLIENT_ID = _text(limits.CLIENT_ID)
PROTOCOL = _text(limits.PROTOCOL)
STATE = _text(limits.STATE)
TYPE = _text(limits.TYPE)
INCARNATION = _text(limits.INCARNATION)
LABEL = _text(limits.LABEL)
PART_OF_ID = _text(limits.PART_OF_ID)
SETTING = _text(limits.SETTING)
PROTOCOLS = _items(limits.PROTOCOLS)
MEMBERS = _items(limits.MEMBERS)
PARTITIONS = _items(limits.PARTITIONS)
HELD = _items(limits.HELD)
GROUPS = _items(limits.GROUPS)
FILTER = _items(limits.FILTER)
SETTINGS = _items(limits.SETTINGS)
DOCUMENT_NAME = _text(limits.DOCUMENT_NAME)
DOCUMENTS = _items(limits.DOCUMENTS)
