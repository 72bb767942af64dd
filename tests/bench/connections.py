"""Memory and CPU of idle connections of Kafka clients, at a node that is then full.

Each connection has asked for versions and sent a heartbeat, as a client does, and rests. The memory
of one is the growth of the server's resident memory divided by their number. One more client is
refused, and those that are there are still served. TLS beside it, with fewer connections: most of
its cost is the handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import ssl
import struct
import time
from pathlib import Path

from coordinator.kafka import apis
from coordinator.kafka.errors import THROTTLING_QUOTA_EXCEEDED
from coordinator.kafka.frames import framed
from coordinator.runtime.memory import resident_bytes
from tests.bench.figures import CannotMeasure, Figures
from tests.bench.servers import Server, Usage, scratch
from tests.certificates import Authority

CONNECTIONS, TLS_CONNECTIONS = 8_000, 1_000
SPARE_DESCRIPTORS = 200
AT_A_TIME = 100
REST_S = 5.0
KIB = 1_024
HELLO = framed(struct.pack(">hhih", apis.API_VERSIONS.key, 0, 1, -1))
BEAT = framed(struct.pack(">hhih", apis.HEARTBEAT.key, 0, 2, -1) + b"\0\1g" + bytes(4) + b"\0\1m")

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def bench_connections(connections: int | None = None, rest_s: float = REST_S) -> Figures:
    """Measure plain text, then TLS."""
    plain = connections or CONNECTIONS
    allow(plain + SPARE_DESCRIPTORS)
    with scratch() as folder:
        authority = Authority(folder / "tls")
        figures = asyncio.run(_measure(folder, plain, rest_s, ()))
        cert, key = authority.issue("node")
        secured = ("--tls-cert-file", cert, "--tls-key-file", key)
        context = ssl.create_default_context(cafile=authority.file)
        tls = min(plain, TLS_CONNECTIONS)
        found = asyncio.run(_measure(folder, tls, rest_s, secured, context))
    return {**figures, **{f"tls_{name}": value for name, value in found.items()}}


async def _measure(
    folder: Path,
    number: int,
    rest_s: float,
    flags: tuple[str, ...],
    tls: ssl.SSLContext | None = None,
) -> Figures:
    limits = ("--kafka-listen", "127.0.0.1:0", "--kafka-max-connections", str(number))
    with Server(folder, "--store", "memory", *limits, *flags) as server:
        (await _opened(server.kafka, tls))[1].close()  # Its imports are not counted.
        await asyncio.sleep(0.5)
        before = resident_bytes(server.pid)
        opening, began_s = Usage(server.pid), time.monotonic()
        connections: list[Connection] = []
        while len(connections) < number:
            some = min(AT_A_TIME, number - len(connections))
            connections += await asyncio.gather(*(_opened(server.kafka, tls) for _ in range(some)))
        took_s, cpu_us = time.monotonic() - began_s, opening.us_each(number)
        resting = Usage(server.pid)
        await asyncio.sleep(rest_s)
        percent, grown = resting.percent(), resident_bytes(server.pid) - before
        refused_with = await _refusal(server.kafka, tls)
        served = Usage(server.pid)
        for connection in connections:
            await _beat(connection)
        beat_us = served.us_each(number)
        for _, writer in connections:
            writer.close()
        await asyncio.sleep(1)
        kept = resident_bytes(server.pid) - before
    return {
        "connections": number,
        "memory of a connection, KiB": grown / number / KIB,
        "memory kept when they are gone, KiB each": kept / number / KIB,
        "opened in, s": took_s,
        "CPU to open one, us": cpu_us,
        "CPU at rest, %": percent,
        "CPU of a heartbeat on each, us": beat_us,
        "one more is refused with": refused_with,
    }


async def _opened(address: str, tls: ssl.SSLContext | None) -> Connection:
    """A connection that has been answered twice."""
    connection = await _connected(address, tls)
    connection[1].write(HELLO)
    if _code(await _frame(connection)):
        raise CannotMeasure("a connection was refused")
    await _beat(connection)
    return connection


async def _connected(address: str, tls: ssl.SSLContext | None) -> Connection:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port), ssl=tls)


async def _beat(connection: Connection) -> None:
    connection[1].write(BEAT)
    await _frame(connection)


async def _refusal(address: str, tls: ssl.SSLContext | None) -> str:
    connection = await _connected(address, tls)
    connection[1].write(HELLO)
    with contextlib.closing(connection[1]):
        code = _code(await _frame(connection))
    return "THROTTLING_QUOTA_EXCEEDED" if code == THROTTLING_QUOTA_EXCEEDED else str(code)


async def _frame(connection: Connection) -> bytes:
    (size,) = struct.unpack(">i", await connection[0].readexactly(4))
    return await connection[0].readexactly(size)


def _code(answer: bytes) -> int:
    """Error code of an answer to ApiVersions 0."""
    return int(struct.unpack_from(">h", answer, 4)[0])


def allow(descriptors: int) -> None:
    """Raise this process's limit of descriptors; the server raises its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < descriptors:
        raise CannotMeasure(f"the system allows {hard} descriptors, and {descriptors} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, descriptors), hard))
