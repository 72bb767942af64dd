"""Log lines from the standard error of C libraries, rate-limited and in the node's format.

gRPC's core writes lines such as `E0000 00:00:…  7 ssl_transport_security.cc:2011] Handshake failed`
in a format of its own, one for every failed connection, so any client can cause a flood of them.
While they are caught, descriptor 2 is a pipe; a thread reads it and logs at most `LINES_MAX` lines
in `PERIOD_S`, then the number of lines dropped.

Python's own standard error bypasses the pipe: log lines, tracebacks, warnings and `faulthandler`
write to a copy of the original descriptor. So they do not wait for the thread, and the stacks of a
crash are shown in any case. Writes to the pipe do not block: when it is full, they are dropped.

Known weakness: text that C code writes just before it aborts the process may be left in the pipe.
`faulthandler` still shows the signal and the stacks.
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
"""Time for the thread to log the rest at exit. It may block if nobody reads standard error."""

_CORE = re.compile(r"([IWEF])\d{4} [\d:.]+ +\d+ ([\w./-]+:\d+)\] (.*)")
_LEVELS = {
    "I": logging.INFO,
    "W": logging.WARNING,
    "E": logging.WARNING,  # Any client can cause most of these: no reason to page anybody.
    "F": logging.CRITICAL,
}
_HANDSHAKE = re.compile(r"Handshake failed|handshake_failed|SSL_ERROR|handshaker", re.IGNORECASE)
_BIND = "add_port.cc:"
"""Failures to bind a port, which the node says itself, by the name of the setting."""
_NO_CERTIFICATE = "PEER_DID_NOT_RETURN_A_CERTIFICATE"

Log = Callable[[int, str, Mapping[str, object]], None]
"""Called with a level of `logging`, an event and its values."""


def structured(line: str) -> tuple[int, str, Mapping[str, object]]:
    """Level, event and values of the log line for a line of standard error."""
    match = _CORE.match(line)
    if match is None:
        return logging.WARNING, "stderr", {"what": line}
    letter, where, event = match.groups()
    if _NO_CERTIFICATE in event:
        reason = "a client sent no certificate; this node requires one (tls_client_ca_file)"
        return logging.WARNING, "tls_handshake_failed", {"what": reason, "where": where}
    if _HANDSHAKE.search(event):
        return logging.WARNING, "tls_handshake_failed", {"what": event, "where": where}
    if where.startswith(_BIND):
        return logging.DEBUG, "grpc", {"what": event, "where": where}
    return _LEVELS[letter], "grpc", {"what": event, "where": where}


class Limited:
    """Rate limit: the first `LINES_MAX` lines of a period are logged, the others counted.

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
        """Log how many lines were dropped, and start a new period."""
        if self._left_out:
            self._log(logging.WARNING, "stderr_left_out", {"lines": self._left_out})
        self._began_s, self._lines, self._left_out = self._clock(), 0, 0


class NativeStderr:
    """Redirects descriptor 2 to a log, from `__enter__` to `__exit__`.

    `sys.stderr` is replaced inside: configure logging there, and call `log_to` at once.
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
        # Never closed: daemon threads may still log.
        sys.stderr = open(
            self._own, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
        )
        faulthandler.enable(self._own)
        self._reader: threading.Thread | None = None
        return self

    def log_to(self, log: Log) -> None:
        """Start the thread that logs the lines."""
        self._reader = threading.Thread(
            target=_read, args=(self._read_end, log), name="coordinator-stderr", daemon=True
        )
        self._reader.start()

    def __exit__(self, *_: object) -> None:
        os.dup2(self._own, 2)  # Closes the last write end: the thread reads EOF and ends.
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
