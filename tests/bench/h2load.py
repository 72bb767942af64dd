"""h2load as a gRPC client: one body again and again, for less CPU than any client in Python.

Of Debian's nghttp2-client. It knows nothing of gRPC: whoever measures with it compares the
server's own counters with what was sent.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import Message

from tests.bench.figures import CannotMeasure
from tests.bench.servers import pin

CONNECTIONS, CALLS_UNDER_WAY = 4, 25
"""And so many calls under way on each connection."""
CALLS_A_CONNECTION = 100
LONG_ENOUGH_S = 600
_SUCCEEDED = re.compile(r"(\d+) succeeded")
_RATE = re.compile(r"finished in [^,]+, ([\d.]+) req/s")


def is_installed() -> bool:
    """True if there is something to measure with."""
    return shutil.which("h2load") is not None


def send(
    address: str,
    method: str,
    message: Message,
    calls: int,
    *,
    connections: int = CONNECTIONS,
    each: int = CALLS_UNDER_WAY,
    every_s: float = 0,
) -> float:
    """Call a method of GroupCoordinator so many times, as fast as it answers.

    Args:
        connections, each: connections, and calls under way on each of them.
        every_s: a call on each connection every so many seconds; they are opened one after the
            other in that time. 0: without a pause.
    Returns:
        Calls a second.
    Raises:
        CannotMeasure: not all were answered.
    """
    flags = ["-n", str(calls), "-c", str(connections), "-m", str(each)]
    if every_s:
        a_tenth = max(1, round(connections / every_s / 10))
        flags += ["--rps", f"{1 / every_s:.4f}", "-r", str(a_tenth), "--rate-period=100ms"]
    with tempfile.TemporaryDirectory() as folder:
        return _rate(_start(Path(folder) / "body", address, method, message, flags), calls)


def send_at_once(
    targets: Sequence[tuple[str, Message]],
    method: str,
    calls: int,
    *,
    cores: Sequence[int] | None = None,
) -> list[float]:
    """Like `send`, to several servers at the same time; calls per second of each.

    Args:
        cores: which client is to run on which; None: the system decides.
    """
    flags = ["-n", str(calls), "-c", str(CONNECTIONS), "-m", str(CALLS_UNDER_WAY)]
    with tempfile.TemporaryDirectory() as folder:
        running = [
            _start(Path(folder) / f"body-{number}", address, method, message, flags)
            for number, (address, message) in enumerate(targets)
        ]
        for process, core in zip(running, cores or (), strict=False):
            pin(process.pid, core)
        return [_rate(process, calls) for process in running]


@dataclass(frozen=True, slots=True)
class Call:
    """One that was answered; seconds since the epoch."""

    began_s: float
    ended_s: float


class Timed:
    """Calls whose times are wanted, in the background.

    Args:
        folder: takes the body and the times; made.
        calls: so many at once, a hundred a connection.
        rate: or so many a second on one connection, until `calls` is asked for.
    """

    def __init__(
        self,
        folder: Path,
        address: str,
        method: str,
        message: Message,
        *,
        calls: int = 0,
        rate: int = 0,
    ) -> None:
        folder.mkdir()
        self._log = folder / "log"
        if calls:
            connections = str(-(-calls // CALLS_A_CONNECTION))
            flags = ["-n", str(calls), "-c", connections, "-m", str(CALLS_A_CONNECTION)]
        else:
            flags = ["-D", str(LONG_ENOUGH_S), "-c", "1", "-m", "1", "--rps", str(rate)]
        flags += ["--log-file", str(self._log)]
        self._is_endless = bool(rate)
        self._process = _start(folder / "body", address, method, message, flags)

    def is_running(self) -> bool:
        """False once all calls were answered."""
        return self._process.poll() is None

    def calls(self) -> list[Call]:
        """The answered calls. Stops a run with a fixed rate."""
        if self._is_endless:
            self._process.terminate()
        self._process.communicate()
        rows = [line.split("\t") for line in self._log.read_text().splitlines()]
        return [
            Call(int(began) / 1e6, (int(began) + int(took)) / 1e6)
            for began, status, took in rows
            if status == "200"
        ]


def _start(
    body: Path, address: str, method: str, message: Message, flags: Sequence[str]
) -> subprocess.Popen[str]:
    encoded = message.SerializeToString()
    # As gRPC sends it: not compressed, its length, itself.
    body.write_bytes(struct.pack(">BI", 0, len(encoded)) + encoded)
    command = [
        "h2load", *flags, "-d", str(body),
        "-H", "content-type: application/grpc", "-H", "te: trailers",
        f"http://{address}/coordinator.v1.GroupCoordinator/{method}",
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603


def _rate(process: subprocess.Popen[str], calls: int) -> float:
    output, _ = process.communicate()
    succeeded, rate = _SUCCEEDED.search(output), _RATE.search(output)
    if succeeded is None or rate is None or int(succeeded[1]) != calls:
        raise CannotMeasure(f"h2load did not get {calls} answers:\n{output}")
    return float(rate[1])
