"""Settings of a worker, and what it does when a handler fails."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from coordinator.client.settings.value_kinds import choice
from coordinator.client.validation import MOST_OFFSET, whole_of

OnError = Literal["retry", "release", "stop"]
AfterAttempts = Literal["release", "stop"]
Drain = Literal["commit", "manual"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPolicy:
    """Reaction to a handler that fails or makes no progress; times in milliseconds.

    `retry` calls it again from the committed offset after a back-off that doubles from
    `retry_backoff_ms` to `retry_backoff_max_ms`; after `max_attempts` failures in a row (None: no
    limit in classic groups, `max_failures` in session groups) `after_max_attempts` is done instead
    (None: `stop` in classic groups, `release` in session groups). `release` gives the partition up.
    `stop` has the worker leave, and `run` raises the error.
    """

    on_error: OnError = "retry"
    max_attempts: int | None = None
    after_max_attempts: AfterAttempts | None = None
    max_failures: int | None = None
    retry_backoff_ms: int = 1_000
    retry_backoff_max_ms: int = 60_000

    def __post_init__(self) -> None:
        choice(*get_args(OnError)).take("on_error", self.on_error)
        if self.after_max_attempts is not None:
            choice(*get_args(AfterAttempts)).take("after_max_attempts", self.after_max_attempts)
        check_number("max_attempts", self.max_attempts, 1)
        check_number("retry_backoff_ms", self.retry_backoff_ms, 1)
        check_number("retry_backoff_max_ms", self.retry_backoff_max_ms, self.retry_backoff_ms)

    def but(
        self,
        on_error: OnError | None,
        max_attempts: int | None,
        after_max_attempts: AfterAttempts | None,
    ) -> ErrorPolicy:
        """The same policy with other values in place of its own; None: its own."""
        return replace(
            self,
            on_error=on_error or self.on_error,
            max_attempts=self.max_attempts if max_attempts is None else max_attempts,
            after_max_attempts=after_max_attempts or self.after_max_attempts,
        )

    def decide(self, attempts: int, *, in_session_group: bool) -> OnError:
        """The reaction to the last of so many failures in a row."""
        most, after = self.max_attempts, self.after_max_attempts
        if most is None and in_session_group:
            most = self.max_failures
        if self.on_error == "retry" and most is not None and attempts >= most:
            return after or ("release" if in_session_group else "stop")
        return self.on_error

    def pause_ms(self, attempts: int) -> int:
        """Back-off after so many failures in a row."""
        return min(self.retry_backoff_max_ms, self.retry_backoff_ms << min(attempts - 1, 30))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times of a worker in milliseconds, and the number of handlers that run at once.

    `idle_ms`: until a handler that returned is called again. `progress_timeout_ms`: without commit
    or `alive` while rows wait, a handler counts as stalled; None: never. `grace_ms`: that handlers
    have to finish when the worker stops. `concurrency`: None: no limit.
    """

    idle_ms: int = 1_000
    progress_timeout_ms: int | None = 300_000
    grace_ms: int = 20_000
    concurrency: int | None = None

    def __post_init__(self) -> None:
        check_number("idle_ms", self.idle_ms, 1)
        check_number("progress_timeout_ms", self.progress_timeout_ms, 1)
        check_number("grace_ms", self.grace_ms, 0)
        check_number("concurrency", self.concurrency, 1)


def check_number(name: str, value: object, least: int) -> None:
    """Check that a setting is None or a whole number from `least` on.

    Raises:
        ValueError: it is not.
    """
    if value is not None:
        whole_of(name, value, least, MOST_OFFSET)
