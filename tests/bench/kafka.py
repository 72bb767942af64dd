"""Heartbeats of Kafka's clients beside those over gRPC: what one costs the server, in one run.

The client writes ready-made frames and counts the answers; its own CPU is not counted, and an
answer with an error is a measurement that failed. Every kind of load is run in turn over both
transports, so that what the machine does meanwhile is in both.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import struct
from collections import defaultdict
from collections.abc import AsyncIterator

from tests.bench import h2load, resting
from tests.bench.figures import CannotMeasure, Figures, Goal
from tests.bench.heartbeat import serving
from tests.bench.load import heartbeat
from tests.bench.resting import GENERATION
from tests.bench.servers import Server, Usage, scratch

HEARTBEAT, VERSION = 12, 4
ANSWER = struct.Struct(">i4xx4xhx")
"""Length and error of the answer to a Heartbeat 4; correlation id, throttle time, tags."""
CALLS, ROUNDS, CONNECTIONS = 20_000, 5, 100
QUICK_CALLS, QUICK_CONNECTIONS = 400, 10


# --- Frames -------------------------------------------------------------------------------------


def frame(group: int, member: int) -> bytes:
    """A Heartbeat 4 of a member, as Java's client writes it; ids have less than 127 bytes."""
    group_id = resting.group_id(group)
    body = struct.pack(">hhih6sx", HEARTBEAT, VERSION, member, 6, b"worker")
    body += _compact(group_id) + struct.pack(">i", GENERATION)
    body += _compact(resting.member_id(member, group_id))
    body += _compact(resting.instance_id(member)) + b"\0"
    return struct.pack(">i", len(body)) + body


def _compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


class Connection(asyncio.Protocol):
    """A connection of a client that only beats."""

    def __init__(self) -> None:
        self._answers = b""
        self._awaited = 0
        self._answered: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    async def beat(self, frames: bytes, number: int) -> None:
        """Write so many frames at once, and wait for all answers.

        Raises:
            CannotMeasure: one has an error, or the connection was closed.
        """
        self._awaited = number
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(frames)
        await self._answered

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._answers += data
        whole = len(self._answers) // ANSWER.size * ANSWER.size
        found = list(ANSWER.iter_unpack(self._answers[:whole]))
        self._answers = self._answers[whole:]
        self._awaited -= len(found)
        assert self._answered is not None
        if set(found) - {(ANSWER.size - 4, 0)}:
            self._answered.set_exception(CannotMeasure(f"heartbeats were answered {set(found)}"))
        elif not self._awaited:
            self._answered.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(CannotMeasure("the server has closed a connection"))

    def close(self) -> None:
        """Hang up."""
        self._transport.close()


@contextlib.asynccontextmanager
async def connections(address: str, number: int) -> AsyncIterator[list[Connection]]:
    """Open connections, closed at the end."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    made: list[Connection] = []
    try:
        for _ in range(number):
            _, one = await loop.create_connection(Connection, host, int(port))
            made.append(one)
        yield made
    finally:
        for one in made:
            one.close()


# --- What one costs -----------------------------------------------------------------------------

GOALS = {"pipelined": 1 / 40, "one at a time": 1 / 20}


def bench_kafka(*, quick: bool = False) -> Figures:
    """Every kind of load over both transports, in turn in one run."""
    if not h2load.is_installed():
        return {"Kafka beside gRPC": "not measured: no h2load (Debian: nghttp2-client)"}
    calls, rounds = (QUICK_CALLS, 1) if quick else (CALLS, ROUNDS)
    kinds = {
        "pipelined": (4, 25),
        "one at a time": (QUICK_CONNECTIONS if quick else CONNECTIONS, 1),
    }
    took: dict[tuple[str, str], list[float]] = defaultdict(list)
    listen = ("--kafka-listen", "127.0.0.1:0")
    with scratch() as folder, serving(folder, 0, static=True, more=listen) as server:
        for _ in range(rounds):
            for name, how in kinds.items():
                took[name, "gRPC"].append(_over_grpc(server, calls, *how))
                took[name, "Kafka"].append(asyncio.run(_over_kafka(server, calls, *how)))
    figures: Figures = {}
    for name, goal in GOALS.items():
        grpc, kafka = (statistics.median(took[name, wire]) for wire in ("gRPC", "Kafka"))
        figures |= {
            f"{name}: over gRPC, us": grpc,
            f"{name}: over Kafka's wire, us": kafka,
            f"{name}: Kafka's in gRPC's": Goal(kafka / grpc, at_most=goal),
        }
    return figures


async def _over_kafka(server: Server, calls: int, number: int, at_once: int) -> float:
    """Microseconds of a beat on so many connections, each of which sends some before it reads."""
    one = frame(0, 0)
    async with connections(server.kafka, number) as open_ones:
        usage = Usage(server.pid)
        rounds = calls // (number * at_once)

        async def all_of(each: Connection) -> None:
            for _ in range(rounds):
                await each.beat(one * at_once, at_once)

        await asyncio.gather(*map(all_of, open_ones))
        return usage.us_each(rounds * number * at_once)


def _over_grpc(server: Server, calls: int, number: int, at_once: int) -> float:
    beat = heartbeat(resting.group_id(0), resting.member_id(0, resting.group_id(0)), GENERATION)
    beat.group_instance_id = resting.instance_id(0)
    usage = Usage(server.pid)
    h2load.send(server.address, "Heartbeat", beat, calls, connections=number, each=at_once)
    return usage.us_each(calls)
