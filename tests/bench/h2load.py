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
from pathlib import Path

from google.protobuf.message import Message

from tests.bench.figures import CannotMeasure

CONNECTIONS, CALLS_UNDER_WAY = 4, 25
"""And so many calls under way on each connection."""
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
) -> float:
    """Call a method of GroupCoordinator so many times, as fast as it answers.

    Args:
        connections, each: connections, and calls under way on each of them.
    Returns:
        Calls a second.
    Raises:
        CannotMeasure: not all were answered.
    """
    flags = ["-n", str(calls), "-c", str(connections), "-m", str(each)]
    with tempfile.TemporaryDirectory() as folder:
        return _rate(_start(Path(folder) / "body", address, method, message, flags), calls)


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
