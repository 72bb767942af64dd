"""Frames: a length of four bytes, then as many bytes. Sans I/O.

A frame that is longer than allowed is refused when its length is read, before any of it is kept.
Bytes are kept as they came until their frame is asked for: whoever sends ahead costs the bytes.
"""

from __future__ import annotations

from struct import Struct

LENGTH = Struct(">i")
SHORTEST = 8
"""Bytes of the shortest request: API key, version and correlation id."""


class FrameRefused(Exception):
    """A length that is refused. The connection cannot go on: no later frame can be found."""


class FrameReader:
    """Cuts the bytes of one connection into frames.

    Args:
        most_bytes: longest frame that is taken; may be changed between two frames.
    """

    __slots__ = ("_at", "_bytes", "most_bytes")

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._bytes: bytes | bytearray = b""
        self._at = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes that no frame has been made of."""
        return len(self._bytes) - self._at

    def feed(self, data: bytes) -> None:
        """Take what was received."""
        if self._at == len(self._bytes):
            self._bytes, self._at = data, 0
            return
        kept = self._bytes
        if not isinstance(kept, bytearray):
            kept = bytearray(memoryview(kept)[self._at :])
            self._at = 0
        elif self._at:
            del kept[: self._at]
            self._at = 0
        kept += data
        self._bytes = kept

    def next(self) -> bytes | None:
        """Return the next whole frame without its length; None: more bytes are needed.

        Raises:
            FrameRefused: it is longer than `most_bytes`, or shorter than any request.
        """
        data, at = self._bytes, self._at
        kept = len(data) - at
        if kept < 4:
            return None
        (size,) = LENGTH.unpack_from(data, at)
        if not SHORTEST <= size <= self.most_bytes:
            taken = f"{SHORTEST} to {self.most_bytes} are taken"
            raise FrameRefused(f"a frame of {size} bytes; {taken}{_guess(data[at : at + 4])}")
        if kept - 4 < size:
            return None
        self._at = end = at + 4 + size
        if size == kept - 4:
            # Nothing is kept beside the last frame: the call that it becomes may be parked.
            self._bytes, self._at = b"", 0
        return bytes(data[at + 4 : end])


def _guess(first: bytes | bytearray) -> str:
    """Guess of the protocol that a wrong length is the beginning of, for readers of the log."""
    if first[:2] == b"\x16\x03":
        return ": TLS, to a listener in plain text?"
    return ": HTTP?" if bytes(first) in _HTTP else ""


_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"PRI ")


def framed(body: bytes) -> bytes:
    """Return a frame: the length, then the body."""
    return LENGTH.pack(len(body)) + body
