"""Calls that are not answered: exceptions that the pipeline raises, and each transport maps once.

`outcome` names the end of such a call in the metrics, by the canonical codes of RPC systems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

VIOLATIONS_MAX = 20
"""Violations that are told. They travel as gRPC metadata, which clients limit to 8 KiB."""
RETRY_S = 1.0


class CallRefused(Exception):
    """A call that is not answered. The message is for its caller."""

    outcome: ClassVar[str]
    is_counted = False
    """It is counted once, however many layers it passes."""


class Unauthenticated(CallRefused):
    """Nobody knows who calls."""

    outcome = "UNAUTHENTICATED"


class Denied(CallRefused):
    """The rules do not allow it."""

    outcome = "PERMISSION_DENIED"


class Unavailable(CallRefused):
    """Who calls cannot be found out at present. It is not the caller's fault."""

    outcome = "UNAVAILABLE"


class GaveUp(CallRefused):
    """The client's deadline has passed."""

    outcome = "DEADLINE_EXCEEDED"


class Exhausted(CallRefused):
    """A limit is reached. `retry_after_s`: when to try again; 0: it would be refused again."""

    outcome = "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, retry_after_s: float = RETRY_S) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Violation:
    """A field that cannot be right, by its path in the request, and what is wrong with it.

    Neither holds a value from the request: values may be long.
    """

    field: str
    description: str


class Malformed(CallRefused):
    """A request that no state of any group could make sense of.

    Args:
        violations: all of them; the first `VIOLATIONS_MAX` are kept.
        words: what is wrong, where that is not a matter of fields.
    """

    outcome = "INVALID_ARGUMENT"

    def __init__(self, violations: Sequence[Violation], words: str = "") -> None:
        told = tuple(violations[:VIOLATIONS_MAX])
        text = words or "; ".join(f"{v.field}: {v.description}" for v in told)
        if len(told) < len(violations):
            text += f"; and {len(violations) - len(told)} more"
        super().__init__(text)
        self.violations = told

    def within(self, place: str) -> Malformed:
        """The same, of a request that stands at `place` in another one."""
        return Malformed([Violation(place + v.field, v.description) for v in self.violations])
