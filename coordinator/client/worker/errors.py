"""Exceptions of a worker's handlers."""

from __future__ import annotations


class PartitionRevoked(BaseException):
    """The partition of a `def` handler is being revoked, or its holding has ended.

    Raised in the handler's thread by the first commit after `revoking` was set, when the offset is
    stored, and by every call once the partition is given back or lost. It ends the handler; let it
    pass. A BaseException, so that `except Exception` does not swallow it.
    """


class HandlerStalled(Exception):
    """A handler showed no progress for `progress_timeout_ms` while rows waited."""


class HandlerStillRuns(Exception):
    """The handler of an earlier holding of this partition has not ended."""


class HandlerCancelled(Exception):
    """A handler was cancelled, but not by the worker."""


class WrongHandler(TypeError):
    """A function cannot be a handler; the message shows the right form. Never retried."""
