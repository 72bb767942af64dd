"""Requests about several groups: each has an answer of its own, and all together have a limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from coordinator.core import limits
from coordinator.kafka.codec import Answer
from coordinator.runtime.slices import Slices
from coordinator.service.kafka.requests import KafkaRequest

Item = TypeVar("Item")


def check_groups(request: KafkaRequest, groups: Sequence[object]) -> None:
    """Refuse a request about too many groups, before any of them is looked at.

    Raises:
        Malformed: they are more than `max_groups_per_call`.
    """
    request.context.pipeline.validator.check_count("groups", len(groups), limits.GROUPS)


async def answer_each(
    request: KafkaRequest,
    groups: Sequence[Item],
    answer: Callable[[KafkaRequest, Item], Awaitable[Answer]],
) -> list[Answer]:
    """Return the answers about several groups, in their order; other tasks run in between.

    Raises:
        Malformed: as `check_groups`.
    """
    check_groups(request, groups)
    slices = Slices()
    answers = []
    for group in groups:
        await slices.pause()
        answers.append(await answer(request, group))
    return answers
