"""The conformance scenarios over Kafka's wire: a second coordinator.

A request of a scenario becomes a frame, written by kio from the fields of the same names; the frame
goes into a connection of the listener, through the pipeline to the same shard, and the frame that
comes back is read by kio. There is no socket and no time but the coordinator's.

What Kafka's wire has no field or no API for raises `Unsayable`. Questions that Kafka does not have
(the journal, the running phase, the ends of logs) are asked over gRPC: they look at what the
members did, and change nothing.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from datetime import timedelta
from io import BytesIO
from typing import Any

from google.protobuf.message import Message
from kio.serial import entity_reader, entity_writer

from coordinator.core.values.commands import CallCancelled
from coordinator.core.values.ids import CallId
from coordinator.core.values.replies import Reply
from coordinator.core.values.requests import Heartbeat, Request
from coordinator.kafka import apis
from coordinator.kafka.apis import Api
from coordinator.kafka.frames import LENGTH
from coordinator.kafka.schema import Field, fields_of, request_schema, response_schema
from coordinator.service.kafka.connection import KafkaConnection
from coordinator.service.kafka.listener import KafkaListener
from coordinator.service.pipeline import Pipeline
from coordinator.service.refusals import Malformed
from coordinator.service.topics import Topics
from coordinator.settings.sections import KafkaConfig
from coordinator.shard.shard import Shard
from coordinator.testing import VirtualCoordinator
from coordinator.testing.engine.loop import SimulatedLoop
from coordinator.v1 import admin_pb2 as admin
from coordinator.v1 import group_pb2 as pb


class Unsayable(Exception):
    """Something that Kafka's wire has no words for."""


APIS: dict[type[Message], Api] = {
    pb.JoinGroupRequest: apis.JOIN_GROUP,
    pb.SyncGroupRequest: apis.SYNC_GROUP,
    pb.HeartbeatRequest: apis.HEARTBEAT,
    pb.LeaveGroupRequest: apis.LEAVE_GROUP,
    pb.OffsetCommitRequest: apis.OFFSET_COMMIT,
    pb.OffsetFetchRequest: apis.OFFSET_FETCH,
    admin.ListGroupsRequest: apis.LIST_GROUPS,
    admin.DescribeGroupsRequest: apis.DESCRIBE_GROUPS,
    admin.DeleteGroupsRequest: apis.DELETE_GROUPS,
    admin.OffsetDeleteRequest: apis.OFFSET_DELETE,
}
ASKED_OVER_GRPC = (
    admin.ListRebalancesRequest,
    admin.DescribePhaseRequest,
    admin.ListLogEndsRequest,
)
IN_THE_VERSION = {"require_known_member_id", "supports_skip_assignment", "report_unknown_groups"}
"""Fields that Kafka says by the version of a request."""
IN_THE_HEADER = "client_id"
RENAMED = {"generation_id_or_member_epoch": "generation_id"}


def version_of(request: Message, api: Api) -> int:
    """The version that means what the request says."""
    match request:
        case pb.JoinGroupRequest():
            return _version_of_join(request, api)
        case admin.DescribeGroupsRequest():
            return 6 if request.report_unknown_groups else 5
        case pb.OffsetFetchRequest():
            return 7  # The last one that is about one group.
        case pb.SyncGroupRequest():
            # From 5 on, a protocol has to be named; up to 4, there is no field for it.
            is_named = request.HasField("protocol_type") or request.HasField("protocol_name")
            return api.high if is_named else 4
    return api.high


def _version_of_join(request: pb.JoinGroupRequest, api: Api) -> int:
    if request.HasField("supports_skip_assignment") and not request.supports_skip_assignment:
        return 8
    is_given_an_id = not request.HasField("require_known_member_id")
    if request.member_id or request.group_instance_id or is_given_an_id:
        return api.high
    # Up to 3, a member is let in before it has been given its id.
    return api.high if request.require_known_member_id else 3


# --- Requests and answers -------------------------------------------------------------------------


def frame_of(request: Message, correlation_id: int) -> tuple[bytes, Api, int]:
    """The frame of a request, with its API and version.

    Raises:
        Unsayable: there is no such API, or it has no field for something that is set.
    """
    api = APIS.get(type(request))
    if api is None:
        raise Unsayable(type(request).__name__)
    version = version_of(request, api)
    schema = request_schema(api.key, version)
    client_id = getattr(request, IN_THE_HEADER, "").encode()
    out = BytesIO()
    out.write(api.key.to_bytes(2, "big") + version.to_bytes(2, "big"))
    out.write(correlation_id.to_bytes(4, "big") + len(client_id).to_bytes(2, "big") + client_id)
    if api.is_flexible(version):
        out.write(b"\0")
    entity_writer(schema)(out, _entity(schema, request))
    return LENGTH.pack(len(out.getvalue())) + out.getvalue(), api, version


def _entity(schema: type[Any], message: Message) -> Any:
    said = {field.name for field, _ in message.ListFields()} - IN_THE_VERSION - {IN_THE_HEADER}
    values: dict[str, Any] = {}
    for field in fields_of(schema):
        name = _name_in_contract(field.name, message)
        said.discard(name)
        if name in message.DESCRIPTOR.fields_by_name:
            values[field.name] = _value(field, message, name)
    if said:
        raise Unsayable(f"{type(message).__name__}: {', '.join(sorted(said))}")
    return schema(**_with_defaults(schema, values))


def _name_in_contract(name: str, message: Message) -> str:
    name = RENAMED.get(name, name)
    known = message.DESCRIPTOR.fields_by_name
    return name if name in known or f"{name}_ms" not in known else f"{name}_ms"


def _value(field: Field, message: Message, name: str) -> Any:
    value = getattr(message, name)
    described = message.DESCRIPTOR.fields_by_name[name]
    if field.message is not None:
        if isinstance(message, pb.OffsetFetchRequest) and not value:
            return None  # All that are stored.
        return tuple(_entity(field.message, item) for item in value)
    if field.is_array:
        return tuple(value)
    if described.has_presence and not message.HasField(name):
        return None if field.default is None else field.default
    return timedelta(milliseconds=value) if name.endswith("_ms") else value


def _with_defaults(schema: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    """Fields that the contract does not have get the schema's defaults, or else nothing."""
    for field in fields(schema):
        if field.name in values and values[field.name] is not None:
            continue
        if field.default is not MISSING or field.default_factory is not MISSING:
            values.pop(field.name, None)
        else:
            values.setdefault(field.name, False if field.type == "bool" else None)
    return values


class Answer:
    """An answer with the fields of the contract that its version has; asking for others raises."""

    def __init__(self, schema: type[Any], entity: Any, like: Any) -> None:
        self._fields: dict[str, Any] = {}
        known = like.fields_by_name
        for field in fields_of(schema):
            value = getattr(entity, field.name)
            name = RENAMED.get(field.name, field.name)
            if name not in known:
                continue
            if field.message is not None:
                inner = known[name].message_type
                value = [Answer(field.message, item, inner) for item in value or ()]
            elif field.kind == "error_code":
                value = value.value
            self._fields[name] = value
        self._absent = set(known) - set(self._fields)

    def __getattr__(self, name: str) -> Any:
        if name in self._absent:
            raise Unsayable(f"no answer says {name}")
        try:
            return self._fields[name]
        except KeyError:
            raise AttributeError(name) from None


def answer_of(frame: bytes, api: Api, version: int, request: Message) -> Answer:
    """The answer in a frame; its fields are those of the contract's answer to the request."""
    schema = response_schema(api.key, version)
    at = 8 + api.is_flexible(version)
    entity, size = entity_reader(schema)(frame, at)
    assert at + size == len(frame), "the answer has more bytes than fields"
    name = type(request).__name__.replace("Request", "Response")
    return Answer(schema, entity, request.DESCRIPTOR.file.message_types_by_name[name])


# --- The coordinator ------------------------------------------------------------------------------


class _Wire(asyncio.Transport):
    """Transport of a connection of the listener: keeps the frames that are written."""

    def __init__(self, host: str) -> None:
        super().__init__({"peername": (host, 1)})
        self.written = bytearray()
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, data: Any) -> None:
        self.written += b"".join(data)

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_reading(self) -> bool:
        return True


class KafkaVirtualCall:
    """A request over a connection of its own, as `VirtualCall`."""

    def __init__(
        self, owner: KafkaCoordinator, request: Message, wire: _Wire, connection: KafkaConnection
    ) -> None:
        self.request = request
        self.client_gone = False
        self.wire = wire
        self.connection = connection
        self._owner = owner
        self.api: Api
        self.version: int

    @property
    def done(self) -> bool:
        return bool(self.wire.written)

    @property
    def response(self) -> Answer:
        if not self.done:
            raise RuntimeError(f"{type(self.request).__name__} has not been answered")
        return answer_of(bytes(self.wire.written), self.api, self.version, self.request)

    def cancel(self) -> None:
        """Hang up."""
        if not self.done and not self.client_gone:
            self.client_gone = True
            self._owner.in_loop(lambda: self.connection.connection_lost(None))


class KafkaCoordinator(VirtualCoordinator):
    """A coordinator on virtual time whose callers speak Kafka's protocol."""

    def __init__(self, **settings: Any) -> None:
        self._futures: dict[CallId, asyncio.Future[Reply]] = {}
        self._malformed: list[str] = []
        self._failures: list[BaseException] = []
        self._correlation = itertools.count(1)
        super().__init__(**settings)

    def send(self, request: Message, client_host: str = "/127.0.0.1") -> Any:
        """See `VirtualCoordinator`."""
        if isinstance(request, ASKED_OVER_GRPC):
            return super().send(request, client_host)
        frame, api, version = frame_of(request, next(self._correlation))
        wire = _Wire(client_host.removeprefix("/"))
        connection = KafkaConnection(self._listener)
        call = KafkaVirtualCall(self, request, wire, connection)
        call.api, call.version = api, version

        def begin() -> None:
            connection.connection_made(wire)
            connection.data_received(frame)

        self.in_loop(begin)
        if self._malformed:
            raise Malformed([], self._malformed.pop())
        assert not wire.is_closed, "the listener has closed the connection"
        return call

    def advance(self, ms: int) -> None:
        """See `VirtualCoordinator`."""
        super().advance(ms)
        self.in_loop()

    def restart(self) -> None:
        """See `VirtualCoordinator`."""
        self._futures.clear()
        self._loop.close()
        super().restart()

    def release_appends(self, *, hold_on: bool = False) -> None:
        """See `VirtualCoordinator`."""
        super().release_appends(hold_on=hold_on)
        self.in_loop()

    def in_loop(self, act: Callable[[], object] = lambda: None) -> None:
        """Do something in the listener's loop, and all that follows from it at this time."""
        self._loop.call_soon(act)
        self._loop.run_until_idle()
        if self._failures:
            raise self._failures.pop()

    def close(self) -> None:
        """End the listener's loop, with whatever is parked in it."""
        self._loop.close()

    # --- Inside ---

    def _load(self) -> None:
        self._loop = _IdlingLoop()
        super()._load()

        async def listen() -> KafkaListener:
            def malformed(kind: str, peer: str, what: str) -> None:
                self._malformed.append(what)

            def failed(what: str, error: BaseException | None) -> None:
                self._failures.append(error or AssertionError(what))

            node: Any = _NodeOfOneShard(self)
            pipeline = Pipeline(node, on_malformed=malformed)
            return KafkaListener(pipeline, KafkaConfig(), Topics(node), on_failure=failed)

        self._listener = self._loop.run_until_complete(listen())

    def _answer(self, call_id: CallId, reply: Reply) -> None:
        future = self._futures.pop(call_id, None)
        if future is None:
            super()._answer(call_id, reply)
        elif not future.done():
            future.set_result(reply)

    def ask(self, request: Request) -> asyncio.Future[Reply]:
        """A command from the pipeline."""
        future = self._loop.create_future()
        self._futures[request.call_id] = future
        self._step(request)
        return future

    def take_back(self, call_id: CallId) -> None:
        """A caller has gone."""
        if self._futures.pop(call_id, None) is not None:
            self._step(CallCancelled(call_id))


class _NodeOfOneShard:
    """The node of the pipeline: the coordinator's one shard answers for it."""

    def __init__(self, coordinator: KafkaCoordinator) -> None:
        self._coordinator = coordinator
        self.settings = coordinator.settings
        self.memory_bytes = 0
        self.has_static_member = self._shard.has_static_member
        self.members_of = self._shard.members_of

    @property
    def _shard(self) -> Shard:
        return self._coordinator.shard

    def group_count(self) -> int:
        return self._shard.group_count

    def new_call_id(self) -> CallId:
        return self._coordinator._new_call_id()

    def listen(self, listener: object) -> None:
        """No event is told: nobody watches."""

    async def ask(
        self, requests: Sequence[Request], on_wait: Callable[[], None] = lambda: None
    ) -> list[Reply]:
        asked = [self._coordinator.ask(request) for request in requests]
        try:
            return [await answer for answer in asked]
        except asyncio.CancelledError:
            for request in requests:
                self._coordinator.take_back(request.call_id)
            raise

    def beat(self, group: str, member: str, instance: str | None, generation: int) -> bool:
        # A step answers, as over gRPC; tests/unit/shard/test_beat.py compares the fast path.
        return False

    def answer_beat(self, heartbeat: Heartbeat) -> Reply:
        return self._coordinator.ask(heartbeat).result()


class _IdlingLoop(SimulatedLoop):
    """A loop that stops when nothing is ready; timers never come."""

    def run_until_idle(self) -> None:
        while self._ready:
            self.stop()
            self.run_forever()
