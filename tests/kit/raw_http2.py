"""HTTP/2 by hand, for what no library would send."""

from __future__ import annotations

import socket
import struct
import time

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

from tests.kit.patience import HANG_S

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """One frame; nothing is checked."""
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes([kind, flags])
        + struct.pack(">I", stream)
        + payload
    )


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=HANG_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class RawClient:
    """A connection whose frames are right, if the caller wants them to be.

    Args:
        window: bytes of each answer that the server may send; 0: none, ever.
    """

    def __init__(self, address: str, window: int = 65_535) -> None:
        self.socket = connect(address)
        config = h2.config.H2Configuration(client_side=True, header_encoding=None)
        self.h2 = h2.connection.H2Connection(config)
        self.h2.local_settings = h2.settings.Settings(
            client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
        )
        self.h2.initiate_connection()
        self._authority = address
        self.flush()

    def request(self, method: str, message: bytes | None, more=()) -> int:
        """Begin a call; its stream. Without a message it stays open."""
        stream = self.h2.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", self._authority),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            *more,
        ]
        self.h2.send_headers(stream, headers)
        if message is not None:
            framed = b"\0" + struct.pack(">I", len(message)) + message
            self.h2.send_data(stream, framed, end_stream=True)
        return stream

    def flush(self) -> bool:
        """Send what is waiting; False if the server has hung up."""
        try:
            self.socket.sendall(self.h2.data_to_send())
        except OSError:
            return False
        return True

    def events(self, seconds: float, until: type | None = None) -> list:
        """Bytes from the server in that time, until it closes the connection or sends `until`."""
        found = []
        ends_at = time.monotonic() + seconds
        while (left := ends_at - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(65_536)
            except OSError:
                break
            if not data:
                break
            try:
                found += self.h2.receive_data(data)
            except h2.exceptions.ProtocolError:
                break
            self.flush()
            if until is not None and any(isinstance(event, until) for event in found):
                break
        return found
