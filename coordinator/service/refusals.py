"""Exceptions by which the pipeline refuses calls; each transport maps them to its own statuses.

`outcome` is the label of such a call in the metrics: a canonical RPC code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from coordinator.core.limits import Limit

VIOLATIONS_MAX = 20
"""Violations in an answer: they travel as gRPC metadata, which clients limit to 8 KiB."""
RETRY_S = 1.0


class CallRefused(Exception):
    """A refused call. The message is for its caller."""

    outcome: ClassVar[str]
    is_counted = False
    """True once it is counted: it may pass several layers that count."""


class UnauthenticatedCall(CallRefused):
    """The caller has no valid credential."""

    outcome = "UNAUTHENTICATED"


class Denied(CallRefused):
    """No rule allows the call."""

    outcome = "PERMISSION_DENIED"


class UnavailableCall(CallRefused):
    """The caller cannot be authenticated at present: the keys cannot be fetched."""

    outcome = "UNAVAILABLE"


class GaveUp(CallRefused):
    """The client's deadline has passed."""

    outcome = "DEADLINE_EXCEEDED"


class Exhausted(CallRefused):
    """A limit is reached. `retry_after_s`: seconds until a retry; 0: it would be refused again."""

    outcome = "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, retry_after_s: float = RETRY_S) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Full(Exhausted):
    """A limit on groups or members is reached: there is room again when others have left."""


@dataclass(frozen=True, slots=True)
class Violation:
    """An invalid field: its path in the request, and what is wrong with it.

    Neither contains a value of the request: values may be long.
    """

    field: str
    description: str


def too_long(field: str, value: str, limit: Limit) -> Violation | None:
    """The violation of a text that is longer than its limit."""
    return Violation(field, limit.words()) if len(value) > limit.characters else None


class Malformed(CallRefused):
    """An invalid request, whatever the state of the group.

    Args:
        violations: invalid fields; the first `VIOLATIONS_MAX` are kept.
        reason: message, if no field is to blame.
    """

    outcome = "INVALID_ARGUMENT"

    def __init__(self, violations: Sequence[Violation], reason: str = "") -> None:
        listed = tuple(violations[:VIOLATIONS_MAX])
        text = reason or "; ".join(f"{v.field}: {v.description}" for v in listed)
        if len(listed) < len(violations):
            text += f"; and {len(violations) - len(listed)} more"
        super().__init__(text)
        self.violations = listed

    def within(self, path: str) -> Malformed:
        """Return it with `path` before each field: the path of a request inside another one."""
        return Malformed([Violation(path + v.field, v.description) for v in self.violations])
