"""gRPC's health protocol: whether the node serves, by a check or a watch.

A watch counts as a stream. A watcher that reads nothing delays no other: a change sets a flag that
each watch reads when it gets there, and is not queued.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2 as pb

from coordinator.service.calls import Call
from coordinator.service.grpc import statuses
from coordinator.service.grpc.calls import GrpcCall
from coordinator.service.pipeline import Pipeline


class HealthService:
    """Health of the node: one status for all services.

    Args:
        services: their names; the empty name, which stands for the node, is added.
    Source: gRPC Health Checking Protocol, `grpc.health.v1`.
    """

    def __init__(self, pipeline: Pipeline, services: Iterable[str]) -> None:
        self._pipeline = pipeline
        self._services = frozenset(("", *services))
        self._status = pb.HealthCheckResponse.NOT_SERVING
        self._changed = asyncio.Event()

    def set(self, *, serving: bool) -> None:
        """Set the status, and wake up all watches."""
        of = pb.HealthCheckResponse
        self._status = of.SERVING if serving else of.NOT_SERVING
        self._changed.set()
        self._changed = asyncio.Event()

    async def Check(self, request: pb.HealthCheckRequest, call: GrpcCall) -> pb.HealthCheckResponse:
        if request.service not in self._services:
            await statuses.abort(
                call.context, grpc.StatusCode.NOT_FOUND, "there is no such service"
            )
        return pb.HealthCheckResponse(status=self._status)

    async def List(self, request: Any, call: GrpcCall) -> None:
        """Refuse `List`. Any: older packages of the protocol do not have its messages."""
        await statuses.abort(call.context, grpc.StatusCode.UNIMPLEMENTED, "ask for one service")

    async def Watch(
        self, request: pb.HealthCheckRequest, call: Call
    ) -> AsyncIterator[pb.HealthCheckResponse]:
        async with self._pipeline.streaming(call):
            last_sent = None
            while True:
                changed = self._changed
                # The protocol has the stream of an unknown service stay open.
                is_known = request.service in self._services
                status = self._status if is_known else pb.HealthCheckResponse.SERVICE_UNKNOWN
                if last_sent != status:
                    last_sent = status
                    yield pb.HealthCheckResponse(status=last_sent)
                else:
                    await changed.wait()
