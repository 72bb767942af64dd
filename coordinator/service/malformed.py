"""Requests that no state of any group could make sense of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

VIOLATIONS_MAX = 20
"""Violations that are told. They travel as gRPC metadata, which clients limit to 8 KiB."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A field that cannot be right, by its path in the request, and what is wrong with it.

    Neither holds a value from the request: values may be long.
    """

    field: str
    description: str


class Malformed(Exception):
    """A request that no state of any group could make sense of.

    Args:
        violations: all of them; the first `VIOLATIONS_MAX` are kept.
    """

    def __init__(self, violations: Sequence[Violation]) -> None:
        told = tuple(violations[:VIOLATIONS_MAX])
        text = "; ".join(f"{v.field}: {v.description}" for v in told)
        if len(told) < len(violations):
            text += f"; and {len(violations) - len(told)} more"
        super().__init__(text)
        self.violations = told

    def within(self, place: str) -> Malformed:
        """The same, of a message that stands at `place` in another one."""
        return Malformed([Violation(place + v.field, v.description) for v in self.violations])
