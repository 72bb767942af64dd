"""Sentences about what a group refuses."""

from __future__ import annotations

from coordinator.core.errors import ErrorCode, advice
from coordinator.printable import printable


def quoted(name: str) -> str:
    """An id in a sentence: on one line, whatever its client has put into it."""
    return f"'{printable(name)}'"


def advice_of(code: str) -> str:
    """Advice for an error code, in half a sentence."""
    return advice(ErrorCode[code]) if code in ErrorCode.__members__ else f"error {code}"
