"""Access rules: the operations of principals on groups. Deny by default; no I/O.

The file is TOML, with a table for each rule:

    [[rule]]
    principal = "cert:billing-*"      # literal, or a prefix and *
    operations = ["join", "commit"]   # read, join, commit, admin; or ["*"]
    groups = "billing-*"              # literal, or a prefix and *

A rule with `deny = true` overrides all that allow. No operation contains another. Requests about no
group (nodes, shards, metrics) need a rule whose `groups` is "*".
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from coordinator.security.errors import CannotSecure

DENIED_BY_DEFAULT = "none: denied by default"
EVERYTHING = "*"
_FIELDS = frozenset({"principal", "operations", "groups", "deny"})


class Operation(StrEnum):
    """Operation on a group. READ: read groups and offsets. JOIN: be a member. COMMIT: store
    offsets. ADMIN: delete groups and offsets; with groups "*", command nodes and shards."""

    READ = "read"
    JOIN = "join"
    COMMIT = "commit"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule; `number` counts from 1."""

    number: int
    principal: str
    operations: frozenset[Operation]
    groups: str
    deny: bool = False

    def __str__(self) -> str:
        verb = "may not" if self.deny else "may"
        names = ", ".join(sorted(self.operations))
        return f"rule {self.number}: {self.principal} {verb} {names} on {self.groups}"

    def concerns(self, principal: str, operation: Operation, group: str | None) -> bool:
        """True if the rule applies. `group` None: nodes, shards, metrics."""
        return (
            operation in self.operations
            and _matches(self.principal, principal)
            and (self.groups == EVERYTHING if group is None else _matches(self.groups, group))
        )


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """Result of an authorisation. `rule`: the rule that decided, in words."""

    is_allowed: bool
    rule: str


_DENIED = AccessDecision(False, DENIED_BY_DEFAULT)


class Rules:
    """Rules of a node."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        # Rules that deny come first, and the first that applies decides.
        self._rules = sorted(rules, key=lambda rule: not rule.deny)
        # Decisions are made once, and shared by all entries of the guard's cache.
        self._decisions = [AccessDecision(not rule.deny, str(rule)) for rule in self._rules]

    def decide(self, principal: str, operation: Operation, group: str | None) -> AccessDecision:
        """Decide whether a principal may do an operation, and by which rule.

        Args:
            group: None: nodes, shards, metrics.
        """
        for rule, decision in zip(self._rules, self._decisions, strict=True):
            if rule.concerns(principal, operation, group):
                return decision
        return _DENIED

    def is_unlimited(self, principal: str, operation: Operation) -> bool:
        """True if a principal may do an operation on every group, without exception."""
        decided = [
            rule
            for rule in self._rules
            if operation in rule.operations and _matches(rule.principal, principal)
        ]
        return any(rule.groups == EVERYTHING for rule in decided) and not any(
            rule.deny for rule in decided
        )


def parse(text: str) -> Rules:
    """Parse the text of a rules file.

    Raises:
        CannotSecure: a rule is wrong; the message has its number.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CannotSecure(f"not TOML: {error}") from error
    listed = content.pop("rule", [])
    if content or not isinstance(listed, list):
        raise CannotSecure(f"it holds [[rule]] tables only, not {', '.join(content) or 'rule'}")
    return Rules(_rule(number, entry) for number, entry in enumerate(listed, 1))


def _rule(number: int, entry: Any) -> Rule:  # Any: whatever TOML makes of it.
    if not isinstance(entry, dict):
        raise CannotSecure(f"rule {number} is not a table")
    if unknown := sorted(set(entry) - _FIELDS):
        raise CannotSecure(f"rule {number}: there is no field {', '.join(unknown)}")
    for name in ("principal", "groups"):
        _check_pattern(number, name, entry.get(name))
    deny = entry.get("deny", False)
    if not isinstance(deny, bool):
        raise CannotSecure(f"rule {number}: deny is true or false")
    return Rule(number, entry["principal"], _operations(number, entry), entry["groups"], deny)


def _operations(number: int, entry: dict[str, Any]) -> frozenset[Operation]:
    listed = entry.get("operations")
    if not isinstance(listed, list) or not listed:
        raise CannotSecure(f"rule {number}: operations is a list, of {', '.join(Operation)} or *")
    if listed == [EVERYTHING]:
        return frozenset(Operation)
    try:
        return frozenset(Operation(name) for name in listed)
    except ValueError:
        raise CannotSecure(
            f"rule {number}: operations may be {', '.join(Operation)}, or * alone"
        ) from None


def _check_pattern(number: int, name: str, pattern: object) -> None:
    if not isinstance(pattern, str) or not pattern:
        raise CannotSecure(f"rule {number}: {name} is a text, literal or a prefix and *")
    if "*" in pattern[:-1]:
        raise CannotSecure(f"rule {number}: {name} {pattern!r}: * stands at the end only")


def _matches(pattern: str, text: str) -> bool:
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern
