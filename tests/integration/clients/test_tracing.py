"""Traces arrive at a collector: a span a call below its client's, and the time it was parked."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from coordinator.client import Member
from tests.integration.waiting import until
from tests.kit.serving import Process

pytest.importorskip("opentelemetry.sdk", reason="traces need the extra `otel`")
from opentelemetry.proto.collector.trace.v1 import (
    trace_service_pb2,
    trace_service_pb2_grpc,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Takes OTLP over gRPC, and keeps it."""

    def __init__(self) -> None:
        self.spans: list = []
        self.about: dict[str, str] = {}

    def Export(self, request, context):
        for resource in request.resource_spans:
            self.about = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return trace_service_pb2.ExportTraceServiceResponse()

    def named(self, name: str) -> list:
        return [span for span in self.spans if span.name == f"coordinator.v1/{name}"]


@contextlib.contextmanager
def collecting():
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield collector, f"http://127.0.0.1:{port}"
    finally:
        server.stop(0)


def serving(endpoint: str, percent: int) -> Process:
    return Process(
        "--otel-endpoint", endpoint, "--otel-sample-percent", str(percent),
        "--group-initial-rebalance-delay-ms", "400", "--console-listen", "",
    )  # fmt: skip


async def work(address: str) -> None:
    """A member's life: it joins, beats and goes."""
    async with Member(address, "orders", {"t": 1}, heartbeat_interval_ms=100) as member:
        while not member.assignment:
            await member.poll(timeout=1)
        await member.poll(timeout=0.5)


def attributes(span) -> dict:
    return {a.key: a.value.string_value or a.value.int_value for a in span.attributes}


async def test_a_call_is_a_span_below_its_client_s_and_says_how_long_it_was_parked():
    with collecting() as (collector, endpoint), serving(endpoint, 0) as server:
        tracer = TracerProvider(sampler=ALWAYS_ON).get_tracer("test")
        with tracer.start_as_current_span("a batch") as span:
            await work(server.address)
            trace = span.get_span_context().trace_id
        await until(lambda: collector.named("LeaveGroup"))
    assert collector.about["service.name"] == "coordinator"
    assert {int.from_bytes(recorded.trace_id) for recorded in collector.spans} == {trace}
    first, second = collector.named("JoinGroup")
    assert attributes(first)["coordinator.error_code"] == "MEMBER_ID_REQUIRED"
    assert [event.name for event in first.events] == []
    assert attributes(second)["coordinator.error_code"] == "NONE"
    assert attributes(second)["messaging.consumer.group.name"] == "orders"
    parked, released = second.events
    assert (parked.name, released.name) == ("parked", "released")
    (waited,) = (a.value.int_value for a in released.attributes)
    assert waited > 300
    assert collector.named("Heartbeat") == []


async def test_who_is_not_sampled_leaves_no_trace_and_who_says_nothing_is_sampled_by_share():
    with collecting() as (collector, endpoint), serving(endpoint, 100) as server:
        tracer = TracerProvider(sampler=ALWAYS_OFF).get_tracer("test")
        with tracer.start_as_current_span("not looked at"):
            await work(server.address)
        await work(server.address)
        await until(lambda: collector.named("LeaveGroup"))
        server.signal(15)
        server.wait()
    assert len(collector.named("LeaveGroup")) == 1
    assert len(collector.named("JoinGroup")) == 2
