"""What libraries in C write to standard error, as log lines of ours.

gRPC's core writes lines such as `E0000 00:00:…  7 ssl_transport_security.cc:2011] Handshake failed`
by itself, in its own format, one for every connection that goes wrong, as many as anybody cares to
cause. While they are caught, descriptor 2 is a pipe; a thread reads it and logs line by line,
`LINES_MAX` in `PERIOD_S` and then the number of those that were left out.

Python's own standard error goes past the pipe: log lines, tracebacks, warnings and `faulthandler`
write to a copy of the descriptor that was there before. So nothing of Python's waits for the
thread, and the stacks of a crash are seen whatever became of it. Nobody waits for the pipe either:
when it is full, what is written to it is dropped.

Known weakness: words that code in C writes in the very moment in which it ends the process may
remain in the pipe. `faulthandler` tells the signal and the stacks all the same.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping

LINES_MAX = 20
PERIOD_S = 10.0
LINE_BYTES_MAX = 4_096
END_S = 2.0
"""For the thread to log what is left. It may hang, if nobody takes our standard error."""

_CORE = re.compile(r"([IWEF])\d{4} [\d:.]+ +\d+ ([\w./-]+:\d+)\] (.*)")
_LEVELS = {
    "I": logging.INFO,
    "W": logging.WARNING,
    "E": logging.WARNING,  # Most of these any client can cause, and nobody should be called for it.
    "F": logging.CRITICAL,
}
_HANDSHAKE = re.compile(r"Handshake failed|handshake_failed|SSL_ERROR|handshaker", re.IGNORECASE)
_NO_CERTIFICATE = "PEER_DID_NOT_RETURN_A_CERTIFICATE"

Log = Callable[[int, str, Mapping[str, object]], None]
"""Given a level of `logging`, an event and its values."""


def structured(line: str) -> tuple[int, str, Mapping[str, object]]:
    """Level, event and values of the log line for a line that was written."""
    found = _CORE.match(line)
    if found is None:
        return logging.WARNING, "stderr", {"what": line}
    letter, where, what = found.groups()
    if _NO_CERTIFICATE in what:
        told = "a client showed no certificate; this node asks for one (tls_client_ca_file)"
        return logging.WARNING, "tls_handshake_failed", {"what": told, "where": where}
    if _HANDSHAKE.search(what):
        return logging.WARNING, "tls_handshake_failed", {"what": what, "where": where}
    return _LEVELS[letter], "grpc", {"what": what, "where": where}


class Limited:
    """Logs lines, and of a flood the first ones and a number.

    Args:
        clock: seconds.
    """

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._began_s = clock()
        self._lines = 0
        self._left_out = 0

    def __call__(self, line: str) -> None:
        if self._clock() - self._began_s >= PERIOD_S:
            self.flush()
        self._lines += 1
        if self._lines > LINES_MAX:
            self._left_out += 1
        else:
            self._log(*structured(line))

    def flush(self) -> None:
        """Tell how many were left out, and begin again."""
        if self._left_out:
            self._log(logging.WARNING, "stderr_left_out", {"lines": self._left_out})
        self._began_s, self._lines, self._left_out = self._clock(), 0, 0


class NativeStderr:
    """Catches what is written to descriptor 2, from `__enter__` to `__exit__`.

    `sys.stderr` is another one inside: set logging up there, and call `log_to` at once.
    """

    def __enter__(self) -> NativeStderr:
        sys.stderr.flush()
        self._before = sys.stderr
        self._reported_crashes = faulthandler.is_enabled()
        self._own = os.dup(2)
        self._read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        os.dup2(write_end, 2)
        os.close(write_end)
        # Never closed: threads that nobody waits for may still log.
        sys.stderr = open(
            self._own, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
        )
        faulthandler.enable(self._own)
        self._reader: threading.Thread | None = None
        return self

    def log_to(self, log: Log) -> None:
        """Say where the lines go."""
        self._reader = threading.Thread(
            target=_read, args=(self._read_end, log), name="coordinator-stderr", daemon=True
        )
        self._reader.start()

    def __exit__(self, *_: object) -> None:
        os.dup2(self._own, 2)  # The last writer has gone: the thread comes to an end.
        if self._reader is not None:
            self._reader.join(END_S)
        sys.stderr.flush()
        sys.stderr = self._before
        faulthandler.disable()
        if self._reported_crashes:
            faulthandler.enable()


def _read(descriptor: int, log: Log) -> None:
    limited = Limited(log)
    rest = b""
    while piece := os.read(descriptor, 65_536):
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            lines, rest = [*lines, rest], b""
        for line in lines:
            if line.strip():
                limited(line[:LINE_BYTES_MAX].decode(errors="backslashreplace"))
    if rest.strip():
        limited(rest[:LINE_BYTES_MAX].decode(errors="backslashreplace"))
    limited.flush()
    os.close(descriptor)
