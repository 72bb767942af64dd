"""Heartbeats of Kafka's clients beside those over gRPC: what one costs the server, in one run.

The client writes ready-made frames and counts the answers; its own CPU is not counted, and an
answer with an error is a measurement that failed. Every kind of load is run in turn over both
transports, so that what the machine does meanwhile is in both.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import statistics
import struct
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path

from coordinator.runtime.memory import resident_bytes
from tests.bench import h2load, resting
from tests.bench.figures import CannotMeasure, Figures, Goal
from tests.bench.heartbeat import A_PROCESS, BEAT_EVERY_S, constant, serving
from tests.bench.load import heartbeat
from tests.bench.resting import GENERATION
from tests.bench.servers import Server, Usage, scratch
from tests.certificates import Authority

HEARTBEAT, VERSION = 12, 4
ANSWER = struct.Struct(">i4xx4xhx")
"""Length and error of the answer to a Heartbeat 4; correlation id, throttle time, tags."""
ALONE_CONNECTIONS, MEMBERS = 1_000, 5_000
TOGETHER = 10
"""Members that share a connection, and beat together."""


@dataclass(frozen=True, slots=True)
class Load:
    """Size of a run. A quick one only shows that the benchmark works."""

    calls: int = 20_000
    rounds: int = 5
    connections: int = 100
    alone: int = ALONE_CONNECTIONS
    members: int = MEMBERS
    seconds: float = 15

    @classmethod
    def quick(cls) -> Load:
        """Seconds, not minutes."""
        return cls(calls=400, rounds=1, connections=10, alone=20, members=40, seconds=1)


def bench_kafka(load: Load) -> Figures:
    """All figures in one run."""
    figures = _beside_grpc(load)
    for together in (1, TOGETHER):
        figures |= _held_alive(load, together)
    return figures


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
async def connections(
    address: str, number: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[list[Connection]]:
    """Open connections, closed at the end."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    made: list[Connection] = []
    try:
        for _ in range(number):
            name = "localhost" if tls else None
            _, one = await loop.create_connection(
                Connection, host, int(port), ssl=tls, server_hostname=name
            )
            made.append(one)
        yield made
    finally:
        for one in made:
            one.close()


# --- What one costs -----------------------------------------------------------------------------

Measure = Callable[[Server, Load, ssl.SSLContext | None], Coroutine[None, None, float]]


async def pipelined(server: Server, load: Load, tls: ssl.SSLContext | None = None) -> float:
    """Microseconds of a beat of clients that send many before they read an answer."""
    one = frame(0, 0)
    at_once = min(load.calls // 4, 100)
    async with connections(server.kafka, 4, tls) as open_ones:
        usage = Usage(server.pid)
        rounds = load.calls // (4 * at_once)

        async def all_of(each: Connection) -> None:
            for _ in range(rounds):
                await each.beat(one * at_once, at_once)

        await asyncio.gather(*map(all_of, open_ones))
        return usage.us_each(rounds * 4 * at_once)


async def one_at_a_time(server: Server, load: Load, tls: ssl.SSLContext | None = None) -> float:
    """Microseconds of a beat of clients that wait for each answer."""
    return await _one_at_a_time(server.kafka, server.pid, load, tls)


async def _one_at_a_time(
    address: str, pid: int, load: Load, tls: ssl.SSLContext | None = None
) -> float:
    one = frame(0, 0)
    async with connections(address, load.connections, tls) as open_ones:
        usage = Usage(pid)
        rounds = load.calls // load.connections

        async def all_of(each: Connection) -> None:
            for _ in range(rounds):
                await each.beat(one, 1)

        await asyncio.gather(*map(all_of, open_ones))
        return usage.us_each(rounds * load.connections)


async def alone(server: Server, load: Load, tls: ssl.SSLContext | None = None) -> float:
    """Microseconds of a beat among connections on which little happens."""
    one = frame(0, 0)
    async with connections(server.kafka, load.alone, tls) as open_ones:
        usage, count = await _every_three_seconds(server, open_ones, [one] * load.alone, 1, load)
        return usage.us_each(count)


async def _every_three_seconds(
    server: Server, open_ones: Sequence[Connection], frames: Sequence[bytes], each: int, load: Load
) -> tuple[Usage, int]:
    """Beat on every connection in turn, evenly spread; the CPU since, and the number of beats."""
    usage = Usage(server.pid)
    began, count = time.monotonic(), 0
    pause = BEAT_EVERY_S / len(open_ones)
    waiting: set[asyncio.Task[None]] = set()
    while (due := began + count * pause) < began + load.seconds:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        number = count % len(open_ones)
        waiting.add(asyncio.ensure_future(open_ones[number].beat(frames[number], each)))
        count += 1
        waiting = {task for task in waiting if not task.done() or task.result()}
    await asyncio.gather(*waiting)
    return usage, count * each


def _over_grpc(server: Server, load: Load) -> dict[str, float]:
    """The same three over gRPC, by h2load."""
    beat = heartbeat(resting.group_id(0), resting.member_id(0, resting.group_id(0)), GENERATION)
    beat.group_instance_id = resting.instance_id(0)
    took: dict[str, float] = {}
    usage = Usage(server.pid)
    h2load.send(server.address, "Heartbeat", beat, load.calls)
    took["pipelined"] = usage.us_each(load.calls)
    usage.start()
    h2load.send(server.address, "Heartbeat", beat, load.calls, connections=load.connections, each=1)
    took["one at a time"] = usage.us_each(load.calls)
    rounds = max(1, round(load.seconds / BEAT_EVERY_S))
    usage.start()
    calls = rounds * load.alone
    h2load.send(
        server.address,
        "Heartbeat",
        beat,
        calls,
        connections=load.alone,
        each=1,
        every_s=BEAT_EVERY_S,
    )
    took["alone"] = usage.us_each(calls)
    return took


GOALS = {"pipelined": 1 / 40, "one at a time": 1 / 20, "alone": 1 / 6}
KINDS: dict[str, Measure] = {
    "pipelined": pipelined,
    "one at a time": one_at_a_time,
    "alone": alone,
}


def _beside_grpc(load: Load) -> Figures:
    if not h2load.is_installed():
        return {"Kafka beside gRPC": "not measured: no h2load (Debian: nghttp2-client)"}
    took: dict[tuple[str, str], list[float]] = defaultdict(list)
    with scratch() as folder:
        tls, flags = _certificates(folder)
        listen = ("--kafka-listen", "127.0.0.1:0")
        with (
            serving(folder, 0, static=True, more=listen) as plain,
            serving(folder, 1, static=True, more=(*listen, *flags)) as secured,
            constant("tests.bench.kafka_constant") as least,
        ):
            for _ in range(load.rounds):
                floor = asyncio.run(_one_at_a_time(*least, load))
                took["one at a time", "constant"].append(floor)
                for name, us in _over_grpc(plain, load).items():
                    took[name, "gRPC"].append(us)
                for name, measure in KINDS.items():
                    took[name, "Kafka"].append(asyncio.run(measure(plain, load, None)))
                    took[name, "TLS"].append(asyncio.run(measure(secured, load, tls)))
    median_us = {key: statistics.median(values) for key, values in took.items()}
    figures: Figures = {}
    for name, goal in GOALS.items():
        grpc, kafka = median_us[name, "gRPC"], median_us[name, "Kafka"]
        figures |= {
            f"{name}: over gRPC, us": grpc,
            f"{name}: over Kafka's wire, us": kafka,
            f"{name}: Kafka's in gRPC's": Goal(kafka / grpc, at_most=goal),
            f"{name}: over Kafka's wire with TLS, us": median_us[name, "TLS"],
        }
    least_us = median_us["one at a time", "constant"]
    return figures | {"one at a time: a protocol that answers with a constant, us": least_us}


def _certificates(folder: Path) -> tuple[ssl.SSLContext, tuple[str, ...]]:
    """A client's context, and the flags of a server that it trusts."""
    authority = Authority(folder / "certificates")
    cert, key = authority.issue("server")
    context = ssl.create_default_context(cafile=authority.file)
    return context, ("--tls-cert-file", cert, "--tls-key-file", key)


# --- How many are held alive --------------------------------------------------------------------


def _held_alive(load: Load, together: int) -> Figures:
    """Members on a connection each, or some together, that beat every 3 s."""
    members = load.members * together
    with scratch() as folder:
        groups = max(1, members // A_PROCESS)
        listen = ("--kafka-listen", "127.0.0.1:0")
        with serving(folder, 0, groups=groups, static=True, more=listen) as server:
            return asyncio.run(_hold(server, load, together, groups))


async def _hold(server: Server, load: Load, together: int, groups: int) -> Figures:
    frames = [frame(group, member) for group in range(groups) for member in range(A_PROCESS)]
    shares = [
        b"".join(frames[first : first + together]) for first in range(0, len(frames), together)
    ]
    before = resident_bytes(server.pid)
    async with connections(server.kafka, len(shares)) as open_ones:
        a_connection = (resident_bytes(server.pid) - before) / len(shares) / 1024
        first = Load(seconds=BEAT_EVERY_S)
        await _every_three_seconds(server, open_ones, shares, together, first)
        usage, count = await _every_three_seconds(server, open_ones, shares, together, load)
        percent = usage.percent()
        a_beat = usage.us_each(count)
    what = f"{len(frames):,} members on {len(shares):,} connections"
    return {
        f"{what}: server's CPU, % of a core": Goal(percent, at_most=15 if together == 1 else 40),
        f"{what}: a heartbeat, us": a_beat,
        f"{what}: a connection, KiB of the server's memory": a_connection,
    }
