"""Frames of a Kafka connection and the headers of requests. The first byte says how the bytes are
cut into reads: what a client sends means the same however it arrives."""

import struct

from coordinator.kafka.apis import APIS
from coordinator.kafka.errors import Undecodable
from coordinator.kafka.frames import FrameReader, FrameRefused, framed
from coordinator.kafka.headers import KEY_AND_VERSION, read_header

MOST_BYTES = 512


def target(data: bytes) -> None:
    if not data:
        return
    stream = data[1:]
    frames, refusal = _cut([stream])
    size = data[0] % 9 + 1
    assert _cut([stream[at : at + size] for at in range(0, len(stream), size)]) == (frames, refusal)
    assert stream.startswith(b"".join(map(framed, frames)))
    for frame in frames:
        assert len(frame) <= MOST_BYTES
        key, version = KEY_AND_VERSION.unpack_from(frame)
        api = APIS.get(key)
        if api is None or not api.offers(version):
            continue
        try:
            header = read_header(frame, api, version)
        except Undecodable:
            continue
        assert header.end <= len(frame)
        assert struct.pack(">i", header.correlation_id) == frame[4:8]
        assert header.client_id.encode() in frame


def _cut(reads: list[bytes]) -> tuple[list[bytes], str]:
    """The frames of what was read, and why there are no more."""
    reader = FrameReader(MOST_BYTES)
    frames = []
    try:
        for read in reads:
            reader.feed(read)
            while (frame := reader.next()) is not None:
                frames.append(frame)
    except FrameRefused as refused:
        return frames, str(refused)
    assert reader.waiting_bytes <= MOST_BYTES + 4
    return frames, ""


def seeds():
    for api in APIS.values():
        for version in (api.low, api.high):
            client_id = b"\xff\xff" if version % 2 else struct.pack(">h", 3) + b"c-1"
            head = struct.pack(">hhi", api.key, version, 7) + client_id
            yield b"\0" + framed(head + b"\0" + b"body") * 2
            yield b"\3" + framed(head + b"\1\5\2ab" + b"body") + struct.pack(">i", 600)
    yield b"\1" + struct.pack(">i", -1) + b"x" * 20
    yield b"\1" + b"GET / HTTP/1.1\r\n\r\n"
