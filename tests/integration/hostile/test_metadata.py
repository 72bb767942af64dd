"""Metadata whose bytes no library would send: refused in a line, and never repeated."""

from __future__ import annotations

import json

import h2.events
import hpack
import pytest

from tests.kit.raw_http2 import DATA, END_HEADERS, END_STREAM, HEADERS, RawClient, frame
from tests.kit.serving import Process

BEAT = "/coordinator.v1.GroupCoordinator/Heartbeat"
UNAUTHENTICATED = b"16"
SECRET = b"s3cret"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"a sha256:{'0' * 64}\n")
    with Process("--auth-tokens-file", str(tokens)) as server:
        yield server
        server.kill()
    assert server.other == ""
    written = json.dumps(server.lines)
    assert "exception" not in written
    assert SECRET.decode() not in written
    assert {line["level"] for line in server.lines} <= {"info", "warning"}


def status_of(server: Process, name: bytes, value: bytes) -> bytes:
    """Status of a call with one more header, given as bytes."""
    client = RawClient(server.address)
    try:
        client.request(BEAT, None)  # So that the library takes what comes for an answer.
        client.h2.data_to_send()
        plain = [(":method", "POST"), (":scheme", "http"), (":path", BEAT), (":authority", "x")]
        block = hpack.Encoder().encode(
            [*plain, ("content-type", "application/grpc"), ("te", "trailers")]
        )
        block += b"\0" + b"".join(bytes([len(part)]) + part for part in (name, value))
        client.socket.sendall(
            frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, END_STREAM, 1, bytes(5))
        )
        for event in client.events(60, until=h2.events.StreamEnded):
            headers = dict(getattr(event, "headers", None) or ())
            if b"grpc-status" in headers:
                return headers[b"grpc-status"]
    finally:
        client.socket.close()
    raise AssertionError("there was no answer")


@pytest.mark.parametrize(
    "value",
    [
        b"Bearer " + SECRET + b"\xe9\xff",
        b"Bearer \0",
        b"Bearer \xed\xa0\x80" + SECRET,  # Half a surrogate, as UTF-8 does not have it.
        b"Basic \xe9",
        b"Basic " + SECRET,
        b"Bearer",
        b"",
        b"\x1b[2J",
    ],
)
def test_an_authorization_of_any_bytes_is_refused(server, value):
    assert status_of(server, b"authorization", value) == UNAUTHENTICATED


def test_a_request_id_of_any_bytes_does_no_harm(server):
    assert status_of(server, b"x-request-id", b"\xff\x1b[2J" + SECRET[:2]) == UNAUTHENTICATED
