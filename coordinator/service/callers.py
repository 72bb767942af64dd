"""Who makes a call, as those who answer it know him."""

from __future__ import annotations

from contextvars import ContextVar

CALLER: ContextVar[str] = ContextVar("caller", default="")
"""Set by the gate, in the task of the call; empty where callers do not say who they are."""
