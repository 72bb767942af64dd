"""Requests that become one command: translated, and answered by the pipeline."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.core.values import requests as c
from coordinator.core.values.ids import CallId
from coordinator.core.values.replies import Reply
from coordinator.runtime.slices import Work
from coordinator.service.kafka.requests import KafkaRequest

Translate = Callable[[KafkaRequest, CallId], Work[list[c.Request]]]


async def ask(request: KafkaRequest, translate: Translate) -> Reply:
    """Return the reply to the command of a request.

    Raises:
        CallRefused: see `Pipeline.answer`.
    """
    replies = await request.context.pipeline.answer(
        request.call, lambda new_call_id: translate(request, new_call_id())
    )
    return replies[0]
