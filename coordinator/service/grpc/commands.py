"""RPCs that become commands: translated, answered by the pipeline, translated back."""

from __future__ import annotations

from functools import partial
from typing import Any

from coordinator.runtime.slices import in_slices
from coordinator.service.calls import Call
from coordinator.service.grpc import translate
from coordinator.service.grpc.serialized import is_large, serialized
from coordinator.service.pipeline import Pipeline


class CommandService:
    """Base of the services whose RPCs become commands."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def _answer(self, request: Any, call: Call) -> Any:
        """Answer a request of GroupCoordinator or GroupAdmin; a large response is `Serialized`."""
        replies = await self._pipeline.answer(
            call, partial(translate.translation, request, client_host=call.caller.host)
        )
        response = await in_slices(translate.response_work(request, replies))
        if is_large(replies):
            replies.clear()
            return await in_slices(serialized(response))
        return response
