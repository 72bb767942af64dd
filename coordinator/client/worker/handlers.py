"""Handlers and hooks of a worker: what was registered, and whether it can be called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from coordinator.client.worker.errors import WrongHandler
from coordinator.client.worker.policy import Drain, ErrorPolicy

FORMS = (
    "a handler is `async def handle(p: Partition) -> None`, which runs as a task, or "
    "`def handle(p: BlockingPartition) -> None`, which runs in a thread"
)
COLOURS = {"Partition": True, "BlockingPartition": False}
"""Annotations of a first parameter that tell the colour of a function; True: `async def`."""


class RunKind(StrEnum):
    """Function that a run calls."""

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
        self._hooks: dict[RunKind, Function] = {}

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

    def add_hook(self, kind: RunKind, function: Function) -> None:
        """Register a hook. Raises ValueError if there is one already."""
        if kind in self._hooks:
            raise ValueError(f"there is a {kind} hook already; a worker has one of each kind")
        self._hooks[kind] = function

    def hook(self, kind: RunKind) -> Function | None:
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
        classes: names of annotations of the first parameter that tell the colour; True: async.
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
