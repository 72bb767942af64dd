"""Digest of a state: two states with one digest have the same future.

Values are compared by what the protocol makes of them. Times count from now; tokens, identifiers
and calls only differ or follow one another, so each is replaced by its rank. What nothing is
decided by (when a state began, the journal) is left out.
"""

from __future__ import annotations

import re
from array import array
from collections import deque
from enum import Enum
from hashlib import blake2b
from types import FunctionType, MethodType
from typing import Any

TIMES = range(1_600_000_000_000, 1_800_000_000_000)
CALLS = range(10_000_000_000, 20_000_000_000)
TOKENS_FROM = 1_000_000_000_000_000
OLDEST_MS = 60_000
"""Times that are longer ago are all the same."""
_IDENTIFIER = re.compile(r"^(.*-00000000-0000-4000-8000-[0-9a-f]{12}|[0-9a-f]{32})$")
_SLOTS: dict[type, tuple[str, ...]] = {}
_LEFT_OUT = frozenset(
    {
        "state_changed_at_ms",
        "opened_at_ms",
        "drain_at_ms",
        "forced_at_ms",
        "ended_at_ms",
        "journal",
        "line",
        "commit_ms",
        "suspect_since_ms",
        "telling",
    }
)


class Digest:
    """Collects values, and hashes them."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._ranks: dict[object, int] = {}
        self._tokens: set[int] = set()

    def of(self, *values: Any) -> bytes:
        """Eight bytes for some values."""
        found = [self._canonical(value) for value in values]
        ranks = {token: rank for rank, token in enumerate(sorted(self._tokens))}
        text = re.sub(r"<(\d+)>", lambda hit: f"<{ranks[int(hit[1])]}>", repr(found))
        return blake2b(text.encode(), digest_size=8).digest()

    def _canonical(self, value: Any) -> Any:  # A case a type.
        kind = type(value)
        if kind is int:
            return self._number(value)
        if kind is str:
            return self._rank(value) if _IDENTIFIER.match(value) else value
        if value is None or kind in (bool, float, bytes):
            return value
        if kind in (tuple, list, deque, array):
            return [self._canonical(item) for item in value]
        if kind is dict or isinstance(value, dict):
            found = [
                (self._canonical(k), self._canonical(v)) for k, v in value.items() if v != set()
            ]
            return ("d", sorted(found, key=repr))
        if kind in (set, frozenset):
            return ("s", sorted((self._canonical(item) for item in value), key=repr))
        if isinstance(value, Enum):
            return value.name
        if isinstance(value, (FunctionType, MethodType)):
            return None
        return kind.__name__, [
            self._canonical(getattr(value, name))
            for name in _fields(kind)
            if name not in _LEFT_OUT and hasattr(value, name)
        ]

    def _number(self, value: int) -> Any:
        if value >= TOKENS_FROM:
            self._tokens.add(value)
            return f"<{value}>"
        if value in TIMES:
            return "t", max(value - self._now_ms, -OLDEST_MS)
        return self._rank(value) if value in CALLS else value

    def _rank(self, value: object) -> str:
        return f"#{self._ranks.setdefault(value, len(self._ranks))}"


def _fields(kind: type) -> tuple[str, ...]:
    found = _SLOTS.get(kind)
    if found is None:
        names = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
        found = _SLOTS[kind] = tuple(sorted({n for n in names if not n.startswith("__")}))
    return found
