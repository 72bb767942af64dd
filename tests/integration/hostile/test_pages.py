"""Pages under hostile clients: each gets an answer or is hung up on, and the next one is served."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import threading
from http import HTTPStatus

import pytest

from coordinator.cli.pages import own_names
from coordinator.settings.sections import ServingConfig
from coordinator.web import server as web_server
from coordinator.web.messages import Response, text
from coordinator.web.server import Page
from tests.kit.certificates import Authority
from tests.kit.patience import HANG_S
from tests.kit.serving import Process

CLOSED = b""
ALLOWED_S = HANG_S
"""Guard against hangs, in seconds."""


@pytest.fixture(scope="module")
def node():
    with Process("--console-listen", "127.0.0.1:0") as server:
        yield server
        server.kill()
    assert server.other == ""
    assert [line for line in server.lines if line["level"] in ("warning", "error")] == []


@pytest.fixture(params=["metrics", "console"])
def address(node, request):
    host, port = getattr(node, request.param).removeprefix("http://").split("/")[0].split(":")
    return host, int(port)


def told(address, data: bytes) -> bytes:
    """Everything that is answered to these bytes until the node hangs up."""
    with socket.create_connection(address, timeout=ALLOWED_S) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        answers = b""
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(65_536):
                answers += piece
        return answers


def statuses(answers: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", answers)]


def get(*lines: bytes, target: bytes = b"/", host: bytes = b"localhost") -> bytes:
    return b"\r\n".join([b"GET " + target + b" HTTP/1.1", b"Host: " + host, *lines, b"", b""])


REFUSED = {
    "an address that does not end, as target": (get(target=b"http://[/"), 400),
    "an address that does not end, as Host": (get(host=b"["), 400),
    "a Host with a user": (get(host=b"evil.example@127.0.0.1"), 400),
    "a Host with a path": (get(host=b"127.0.0.1/x"), 400),
    "two Hosts": (get(b"Host: 127.0.0.1"), 400),
    "no Host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "no Host, in HTTP/1.0": (b"GET / HTTP/1.0\r\n\r\n", 421),
    "a name of somebody else's": (get(host=b"evil.example"), 421),
    "a name of somebody else's, in the target": (get(target=b"http://evil.example/"), 421),
    "a name that begins as ours": (get(host=b"localhost.evil.example"), 421),
    "two lengths": (
        get(b"Content-Length: 5", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
        400,
    ),
    "two numbers for one length": (get(b"Content-Length: 4", b"Content-Length: 5"), 400),
    "a length below zero": (get(b"Content-Length: -1"), 400),
    "another encoding": (get(b"Transfer-Encoding: gzip, chunked"), 501),
    "chunks of rubbish": (get(b"Transfer-Encoding: chunked") + b"zz\r\n", 400),
    "a body without end": (get(b"Content-Length: 99999999") + b"x" * 100_000, 413),
    "a header of 64 KiB": (get(b"X: " + b"x" * 65_536), 431),
    "thousands of headers": (get(*[b"X: y"] * 20_000), 431),
    "a folded header": (get(b"X: y", b" z: a"), 200),
    "a space before the colon": (get(b"Content-Length : 4"), 400),
    "HTTP/0.9": (b"GET /\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "HTTP/3": (b"GET / HTTP/3.0\r\nHost: localhost\r\n\r\n", 505),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(60), 400),
    "a NUL": (get(target=b"/\0"), 400),
    "POST": (b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", 501),
    "OPTIONS": (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 501),
    "TRACE": (b"TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n", 501),
    "CONNECT": (b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 501),
    "a way out of the folder": (get(target=b"/../../etc/passwd"), 404),
    "a way out of the folder, in disguise": (get(target=b"/%2e%2e/%2e%2e/etc/passwd%00"), 404),
}


@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_answered_once_and_the_next_is_served(address, data, status):
    smuggled = get(target=b"/metrics")
    assert statuses(told(address, data + (smuggled if status in (400, 413) else b""))) == [status]
    assert statuses(told(address, get())) == [200]


@pytest.mark.parametrize(
    "host",
    [b"LOCALHOST", b"localhost.:80", b"127.0.0.1", b"[::1]:7401",
     socket.gethostname().encode()],
)  # fmt: skip
def test_the_node_is_known_by_its_own_names(address, host):
    assert statuses(told(address, get(host=host))) == [200]


def test_the_node_is_known_by_the_names_of_its_settings():
    config = ServingConfig(advertised_host="Node.Example.", console_listen="10.0.0.1:0")
    names = own_names(config)
    assert {"node.example", "10.0.0.1", "127.0.0.1"} <= names
    assert "" not in names


def test_a_body_is_no_second_request(address):
    inner = get(target=b"/no-such-page")
    for body in (
        get(b"Content-Length: %d" % len(inner)) + inner,
        get(b"Transfer-Encoding: chunked") + b"%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner),
        get(b"Expect: 100-continue", b"Content-Length: %d" % len(inner)) + inner,
    ):
        answers = statuses(told(address, body + get()))
        assert [status for status in answers if status != 100] == [200, 200]


def test_requests_of_one_connection_are_answered_in_their_order(address):
    answers = told(address, get() * 3 + get(target=b"/nothing") + get(b"Connection: close") * 2)
    assert statuses(answers) == [200, 200, 200, 404, 200]


def test_head_has_the_length_and_not_the_body(address):
    connection = http.client.HTTPConnection(*address, timeout=ALLOWED_S)
    for method, is_there in (("HEAD", False), ("GET", True), ("HEAD", False)):
        connection.request(method, "/")
        answer = connection.getresponse()
        assert answer.status == 200
        assert int(answer.headers["Content-Length"]) > 0
        assert bool(answer.read()) is is_there
    connection.close()


ODD = [
    b"Authorization: Basic \xe9",
    b"Authorization: Bearer \xff\xfe",
    b"Accept: application/openmetrics-text; version=abc",
    b"Accept: application/openmetrics-text; version=1.0.0\x85, \xe9",
    b"Accept: text/plain; version=" + b"9" * 5_000,
    b"Accept-Encoding: gzip;q=, ;;,\xe9",
    b"If-None-Match: \"",
    b"Cookie: \xe9=\xe9",
]  # fmt: skip


@pytest.mark.parametrize("line", ODD)
def test_headers_that_make_no_sense_do_no_harm(address, line):
    assert statuses(told(address, get(line, b"Connection: close"))) == [200]


@pytest.mark.parametrize(
    "query",
    [
        b"name[]=%ff&name[]=%e9",
        b"\xe9",
        b"group=%00&group=%ff",
        b"%",
        b"&&&;;;=",
        b"generation=1e9",
    ],
)
@pytest.mark.parametrize("path", [b"/", b"/api/group", b"/api/groups", b"/api/timeline.svg"])
def test_a_query_may_be_anything(address, path, query):
    (status,) = statuses(told(address, get(target=path + b"?" + query)))
    assert status in (200, 404) or (status == 400 and not query.isascii())


def test_a_scraper_gets_the_format_and_the_names_it_asks_for(node):
    host, port = node.metrics.removeprefix("http://").split("/")[0].split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=ALLOWED_S)
    for accept, kind, last in (
        ("", "text/plain; version=0.0.4", b"\n"),
        ("text/plain;version=1.0.0", "text/plain; version=1.0.0", b"\n"),
        ("application/openmetrics-text;version=1.0.0", "application/openmetrics-text", b"# EOF\n"),
    ):
        connection.request("GET", "/metrics", headers={"Accept": accept})
        answer = connection.getresponse()
        assert answer.headers["Content-Type"].startswith(kind)
        assert answer.read().endswith(last)
    connection.request("GET", "/metrics?name[]=coordinator_build_info")
    assert connection.getresponse().read().count(b"coordinator_") == 3
    for accepted, encoding in (("br, GZIP ;q=0.5", "gzip"), ("gzip; q=0.0, br", None)):
        connection.request("GET", "/metrics", headers={"Accept-Encoding": accepted})
        answer = connection.getresponse()
        assert answer.headers["Content-Encoding"] == encoding
        answer.read()
    connection.close()


# --- Time and room ----------------------------------------------------------------------------


@contextlib.contextmanager
def page(handler=lambda request: text(HTTPStatus.OK, "here"), **more):
    server = Page("test", ("127.0.0.1", 0), handler, **more)
    try:
        yield server
    finally:
        server.close()


def connected(server: Page) -> socket.socket:
    host, port = server.url.removeprefix("http://").removeprefix("https://").strip("/").split(":")
    return socket.create_connection((host, int(port)), timeout=ALLOWED_S)


def end_of(connection: socket.socket) -> bytes:
    with contextlib.suppress(ConnectionError):
        return connection.recv(1)
    return CLOSED


@pytest.mark.parametrize("first", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: a\r\nX: y"])
def test_who_says_nothing_or_not_enough_is_hung_up_on(first):
    with page(timeout_s=0.2) as server, connected(server) as connection:
        connection.sendall(first)
        assert end_of(connection) == CLOSED


def test_who_says_a_byte_now_and_then_is_hung_up_on():
    stop = threading.Event()
    with page(timeout_s=0.5) as server, connected(server) as connection:

        def trickle() -> None:
            with contextlib.suppress(OSError):
                while not stop.wait(0.05):
                    connection.sendall(b"x")

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert end_of(connection) == CLOSED
        finally:
            stop.set()
            thread.join()


def test_who_does_not_take_the_answer_is_hung_up_on_and_holds_up_nobody():
    body = bytes(50_000_000)
    with page(lambda _: Response(HTTPStatus.OK, "a/b", body), timeout_s=2.0) as server:
        with connected(server) as slow, connected(server) as quick:
            for connection in (slow, quick):
                connection.sendall(get(b"Connection: close"))
            taken = 0
            while piece := quick.recv(1_000_000):
                taken += len(piece)
            assert taken > len(body)
            taken = 0
            with contextlib.suppress(ConnectionError):
                while True:
                    threading.Event().wait(3.0)  # Longer than the node waits.
                    piece = slow.recv(20_000_000)
                    if not piece:
                        break
                    taken += len(piece)
            assert taken < len(body)


def test_a_handshake_that_does_not_come_is_not_waited_for_and_rubbish_is_hung_up_on(
    tmp_path, monkeypatch, caplog
):
    from coordinator.security.tls import ServerTls

    monkeypatch.setattr(web_server, "HANDSHAKE_S", 0.2)
    tls = ServerTls(*Authority(tmp_path).issue("node"))
    with page(tls=lambda: tls.page_context) as server:
        for first in (b"", b"\x16", b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(1_000)):
            with connected(server) as connection:
                connection.sendall(first)
                with contextlib.suppress(ConnectionError):
                    while connection.recv(1_000):  # An alert, perhaps.
                        pass
    assert caplog.records == []


def test_the_connection_that_has_waited_longest_makes_way(monkeypatch):
    monkeypatch.setattr(web_server, "CONNECTIONS_MAX", 3)
    with page() as server, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connected(server)) for _ in range(3)]
        with connected(server) as another:
            another.sendall(get(b"Connection: close"))
            assert another.recv(12) == b"HTTP/1.1 200"
        assert end_of(silent[0]) == CLOSED
        silent[2].sendall(get(b"Connection: close"))
        assert silent[2].recv(12) == b"HTTP/1.1 200"


def test_a_handler_that_fails_is_logged_and_answered(caplog):
    def fail(_):
        raise ZeroDivisionError

    with page(fail) as server, connected(server) as connection:
        connection.sendall(get(b"Connection: close"))
        assert connection.recv(12) == b"HTTP/1.1 500"
    (record,) = caplog.records
    assert record.exc_info[0] is ZeroDivisionError


def test_a_page_ends_while_its_handler_hangs():
    begun, hangs = threading.Event(), threading.Event()

    def hang(_):
        begun.set()
        hangs.wait(ALLOWED_S)
        return text(HTTPStatus.OK, "late")

    with page(hang) as server, connected(server) as connection:
        connection.sendall(get())
        assert begun.wait(ALLOWED_S)
        server.close()
        assert end_of(connection) == CLOSED
        hangs.set()


def test_the_console_lists_groups(node):
    answers = told(address_of(node.console), get(b"Connection: close", target=b"/api/groups"))
    listed = json.loads(answers.partition(b"\r\n\r\n")[2])
    assert (listed["groups"], listed["matching"], listed["skip"]) == ([], 0, 0)


def address_of(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("http://").split("/")[0].split(":")
    return host, int(port)
