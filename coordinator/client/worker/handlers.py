"""Handlers and hooks of a worker: what was registered, what is done when one fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal, get_args

from coordinator.client.settings.value_kinds import choice
from coordinator.client.validation import MOST_OFFSET, whole_of


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
        """The reaction to a failure that is number `attempts` in a row."""
        most, after = self.max_attempts, self.after_max_attempts
        if most is None and in_session_group:
            most = self.max_failures
        if self.on_error == "retry" and most is not None and attempts >= most:
            return after or ("release" if in_session_group else "stop")
        return self.on_error

    def pause_ms(self, attempts: int) -> int:
        """Back-off after `attempts` failures in a row."""
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


FORMS = (
    "a handler is `async def handle(p: Partition) -> None`, which runs as a task, or "
    "`def handle(p: BlockingPartition) -> None`, which runs in a thread"
)
COLOURS = {"Partition": True, "BlockingPartition": False}
"""Annotations of a first parameter that show the colour of a function; True: `async def`."""


class CallKind(StrEnum):
    """Kind of a call: of the handler, or of a hook."""

    HANDLER = "handler"
    WARM = "warm"
    DRAIN = "drain"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Function:
    """A function that was registered; `is_async`: it returns a coroutine."""

    call: Callable[[Any], Any]
    is_async: bool


@dataclass(frozen=True, slots=True)
class TopicHandler(Function):
    """The handler of a topic, or of all topics that have none of their own."""

    policy: ErrorPolicy
    drain: Drain = "commit"


class Handlers:
    """Handlers by topic, and hooks by kind."""

    def __init__(self) -> None:
        self._by_topic: dict[str | None, TopicHandler] = {}
        self._hooks: dict[CallKind, Function] = {}

    def add(self, topic: str | None, handler: TopicHandler) -> None:
        """Register a handler; None: of every topic without one.

        Raises:
            ValueError: there is one already.
        """
        if topic in self._by_topic:
            where = "all topics" if topic is None else f"topic {topic!r}"
            raise ValueError(
                f"there is a handler of {where} already; another topic's is registered with "
                '@worker.handler(topic="...")'
            )
        self._by_topic[topic] = handler

    def add_hook(self, kind: CallKind, function: Function) -> None:
        """Register a hook. Raises ValueError if there is one already."""
        if kind in self._hooks:
            raise ValueError(f"there is a {kind} hook already; a worker has one of each kind")
        self._hooks[kind] = function

    def hook(self, kind: CallKind) -> Function | None:
        """The hook of a kind; None: there is none."""
        return self._hooks.get(kind)

    def of(self, topic: str) -> TopicHandler:
        """The handler of a topic; see `check`."""
        return self._by_topic.get(topic) or self._by_topic[None]

    def check(self, topics: Collection[str]) -> None:
        """Check that every topic has a handler, and that every handler has a topic.

        Raises:
            ValueError: names the first that has none.
        """
        self.check_any()
        for topic in sorted(topics):
            if topic not in self._by_topic and None not in self._by_topic:
                raise ValueError(
                    f"topic {topic!r} has no handler; register one with "
                    f'@worker.handler(topic="{topic}"), or one of all topics with @worker.handler'
                )
        for name in self._by_topic:
            if name is not None and name not in topics:
                known = ", ".join(map(repr, sorted(topics)))
                raise ValueError(f"there is a handler of topic {name!r}; the topics are {known}")

    def check_any(self) -> None:
        """Check that there is a handler.

        Raises:
            ValueError: there is none.
        """
        if not self._by_topic:
            raise ValueError(
                f"the worker has no handler; decorate one with @worker.handler: {FORMS}"
            )


def is_coroutine_function(function: object) -> bool:
    """True of `async def` functions, and of objects whose `__call__` is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # Its colour is asked, not whether.
    )


def refuse_coroutine(result: object, advice: str) -> None:
    """Refuse what a function returned that is called in a thread, if it is a coroutine.

    Raises:
        WrongHandler: with these words.
    """
    if inspect.iscoroutine(result):
        result.close()
        raise WrongHandler(advice)


def check_function(function: object, parameters: str, forms: str, classes: dict[str, bool]) -> bool:
    """Check that a function can be called with the parameters; True if it is `async def`.

    Args:
        parameters: as a message names them, separated by commas: "p".
        forms: the right forms, for the message.
        classes: names of annotations of the first parameter that show the colour; True: async.
    Raises:
        WrongHandler: it cannot.
    """
    name = getattr(function, "__qualname__", None) or repr(function)
    if not callable(function) or inspect.isclass(function):
        raise WrongHandler(f"{name} is no function; {forms}")
    call = getattr(function, "__call__", function)  # noqa: B004
    for one in (function, call):
        if inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one):
            raise WrongHandler(f"{name} is a generator, whose body would never run; {forms}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise WrongHandler(f"the parameters of {name} are not known; {forms}") from None
    taken = list(signature.parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    expected = len(parameters.split(","))
    if len(taken) != expected or any(p.kind not in positional for p in taken):
        count = "one parameter" if expected == 1 else f"{expected} parameters"
        raise WrongHandler(
            f"{name}{signature} takes other parameters than ({parameters}): it is called with "
            f"{count}; {forms}"
        )
    is_async = is_coroutine_function(function)
    annotation = taken[0].annotation
    annotation_name = (
        annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    )
    wants = classes.get(annotation_name.strip("'\"").rpartition(".")[2])
    if wants is not None and wants is not is_async:
        kind = "async def" if is_async else "def"
        raise WrongHandler(f"{name} is `{kind}` and takes a {annotation_name}; {forms}")
    return is_async
