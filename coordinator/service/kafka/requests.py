"""`KafkaRequest`: what a handler of an API is given, and the seams to the rest of the node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from coordinator.core.values import requests as c
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import CallId
from coordinator.core.values.replies import Reply
from coordinator.kafka.codec import Answer, Body
from coordinator.kafka.errors import wire_code
from coordinator.kafka.headers import RequestHeader
from coordinator.runtime.fetch_waits import FetchWaits
from coordinator.runtime.slices import Work
from coordinator.service.kafka.addresses import BrokerAddresses
from coordinator.service.kafka.calls import KafkaCall
from coordinator.service.pipeline import Pipeline
from coordinator.service.topics import Topics

ITEMS = 1_000
"""Items of a request besides those of the longest list that settings allow."""


@dataclass(slots=True)
class Context:
    """Parts of a listener that its handlers share."""

    pipeline: Pipeline
    addresses: BrokerAddresses
    topics: Topics
    waits: FetchWaits
    cluster_id: str = "coordinator"
    is_leaving: bool = False
    """True once the node stops: its groups go to other nodes, or come back with it."""

    @property
    def most_items(self) -> int:
        """Items that one request may list; a longer one is not decoded."""
        limits = self.pipeline.node.settings.limits
        # A topic and a partition for each.
        return ITEMS + 2 * max(limits.max_partitions_per_call, limits.max_members_per_call)


@dataclass(slots=True)
class ClientSoftware:
    """Name and version of a client's library, as it says them in ApiVersions 3 and later."""

    name: str = ""
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


class Authentication(Protocol):
    """Authentication of one connection."""

    @property
    def is_done(self) -> bool:
        """True once other requests than ApiVersions and those of SASL are answered."""
        ...

    @property
    def takes_token(self) -> bool:
        """True if the next frame is a bare token, without a header (SaslHandshake 0)."""
        ...

    @property
    def has_failed(self) -> bool:
        """True if the connection is to be closed after the answer."""
        ...

    def handshake(self, mechanism: str, version: int) -> Answer: ...

    async def authenticate(self, data: bytes) -> Answer: ...

    async def token(self, frame: bytes) -> bytes | None:
        """Answer a bare token; None: with the end of the connection alone."""
        ...


@dataclass(frozen=True, slots=True)
class KafkaRequest:
    """A decoded request.

    body: kio's dataclass of the API in the request's version; Any: there is one for each.
    authentication: of its connection.
    size_bytes: of its frame.
    """

    header: RequestHeader
    body: Body
    call: KafkaCall
    context: Context
    software: ClientSoftware
    authentication: Authentication
    size_bytes: int = 0

    @property
    def version(self) -> int:
        return self.header.version

    def code(self, error: ErrorCode) -> int:
        if error is ErrorCode.COORDINATOR_NOT_AVAILABLE and self.context.is_leaving:
            error = ErrorCode.NOT_COORDINATOR
        return wire_code(error, self.header.api, self.header.version)


Translate = Callable[[KafkaRequest, CallId], Work[list[c.Request]]]


async def reply_to(request: KafkaRequest, translate: Translate) -> Reply:
    """Return the reply to the command of a request.

    Raises:
        CallRefused: see `Pipeline.answer`.
    """
    replies = await request.context.pipeline.answer(
        request.call, lambda new_call_id: translate(request, new_call_id())
    )
    return replies[0]
