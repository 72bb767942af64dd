"""Table of the APIs that are served: API, handler, what it answers when the call is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from coordinator.kafka import apis
from coordinator.kafka.apis import Api
from coordinator.kafka.codec import Answer, Body
from coordinator.service.calls import Kind
from coordinator.service.kafka import group_admin, groups, metadata, offsets, refusals, rows
from coordinator.service.kafka.api_versions import api_versions
from coordinator.service.kafka.calls import KINDS
from coordinator.service.kafka.requests import KafkaRequest
from coordinator.service.pipeline import OK
from coordinator.service.refusals import CallRefused

OPEN = Kind("ApiVersions", is_open=True, is_throttled=False)
Groups = Callable[[Body], Sequence[str | None]]


def _no_group(_: Body) -> tuple[None]:
    return (None,)


@dataclass(frozen=True, slots=True)
class ApiHandler:
    """Handler of an API.

    serve: answers a request; raises `CallRefused`.
    refuse: the answer with an error, where this API has its place for it.
    groups: those that a request names.
    """

    serve: Callable[[KafkaRequest], Awaitable[Answer]]
    refuse: Callable[[KafkaRequest, int], Answer] = groups.refuse
    groups: Groups = _no_group


async def _handshake(request: KafkaRequest) -> Answer:
    return request.authentication.handshake(request.body.mechanism, request.version)


async def _authenticate(request: KafkaRequest) -> Answer:
    return await request.authentication.authenticate(request.body.auth_bytes)


async def _api_versions(request: KafkaRequest) -> Answer:
    return await api_versions(request, HANDLERS)


HANDLERS: dict[Api, ApiHandler] = {
    apis.PRODUCE: ApiHandler(rows.produce, rows.refuse_produce),
    apis.FETCH: ApiHandler(rows.fetch, rows.refuse_fetch),
    apis.LIST_OFFSETS: ApiHandler(rows.list_offsets, refusals.refuse_partitions),
    apis.API_VERSIONS: ApiHandler(_api_versions),
    apis.DESCRIBE_CONFIGS: ApiHandler(metadata.describe_configs, metadata.refuse_describe_configs),
    apis.DESCRIBE_CLUSTER: ApiHandler(metadata.describe_cluster),
    apis.SASL_HANDSHAKE: ApiHandler(_handshake),
    apis.SASL_AUTHENTICATE: ApiHandler(_authenticate),
    apis.METADATA: ApiHandler(metadata.metadata, metadata.refuse_metadata),
    apis.FIND_COORDINATOR: ApiHandler(
        metadata.find_coordinator, metadata.refuse_find, metadata.keys_of
    ),
    apis.JOIN_GROUP: ApiHandler(groups.join_group, groups.refuse_join, groups.groups_of),
    apis.SYNC_GROUP: ApiHandler(groups.sync_group, groups.refuse, groups.groups_of),
    apis.HEARTBEAT: ApiHandler(groups.heartbeat, groups.refuse, groups.groups_of),
    apis.LEAVE_GROUP: ApiHandler(groups.leave_group, groups.refuse, groups.groups_of),
    apis.OFFSET_COMMIT: ApiHandler(
        offsets.offset_commit, refusals.refuse_partitions, groups.groups_of
    ),
    apis.OFFSET_FETCH: ApiHandler(offsets.offset_fetch, offsets.refuse_fetch, offsets.groups_of),
    apis.OFFSET_DELETE: ApiHandler(offsets.offset_delete, groups.refuse, groups.groups_of),
    apis.LIST_GROUPS: ApiHandler(group_admin.list_groups),
    apis.DESCRIBE_GROUPS: ApiHandler(
        group_admin.describe_groups, group_admin.refuse_describe, lambda body: body.groups
    ),
    apis.DELETE_GROUPS: ApiHandler(
        group_admin.delete_groups, group_admin.refuse_delete, lambda body: body.groups_names
    ),
}
"""The APIs that are served; ApiVersions lists them."""
OFFERED: dict[int, Api] = {api.key: api for api in HANDLERS}
"""The same by key."""


def kind_of(api: Api) -> Kind:
    """Return the kind of an API's calls."""
    return KINDS.get(api, OPEN)


async def answer(request: KafkaRequest) -> Answer:
    """Answer a request; a refused one in the API's own place for errors.

    Raises:
        Unauthenticated: the caller's token is no longer valid.
    """
    handler, pipeline = HANDLERS[request.header.api], request.context.pipeline
    kind = request.call.kind
    try:
        answer = await handler.serve(request)
    except CallRefused as error:
        pipeline.refused(request.call, error)
        return handler.refuse(request, refusals.code_of(error, request.header.api))
    is_counted = kind.command is not None or request.header.api is apis.HEARTBEAT
    if not (is_counted or request.authentication.has_failed):
        pipeline.calls[kind.name, OK] += 1
    return answer
