"""An S3 server on loopback, whose requests can fail, hang, or succeed without an answer.

moto carries the protocol, conditional puts included. It forgets all when it stops.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tests.kit.patience import HANG_S

BUCKET = "results"
PASS, FAIL, LOSE, HANG = "pass", "fail", "lose", "hang"


class S3Server:
    """`choose` says for the method and path of each request what becomes of it.

    FAIL: it is refused with 503, and has no effect. LOSE: it is carried out, and the connection
    ends before the answer. HANG: it has no effect and no answer until `release`.
    """

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Silent(WSGIRequestHandler):
            protocol_version = "HTTP/1.1"

            def log(self, *_: object) -> None:
                pass

        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=Silent
        )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._released = threading.Event()
        self.choose: Callable[[str, str], str] = lambda method, path: PASS
        self.met: Counter[str] = Counter()
        """Fates of requests since the last `reset`, counted."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def reset(self) -> None:
        """Let everything pass again."""
        self.choose = lambda method, path: PASS
        self._released.set()
        self._released = threading.Event()
        self.met.clear()

    def stop(self) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        fate = self.choose(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        self.met[fate] += 1
        if fate == FAIL:
            start_response("503 Slow Down", [("Content-Length", "0"), ("Connection", "close")])
            return [b""]
        if fate == HANG:
            self._released.wait(HANG_S)
        if fate == LOSE:
            list(self._moto(environ, lambda *_: None))
        if fate in (HANG, LOSE):
            connection = environ["werkzeug.socket"]
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            raise ConnectionResetError("no answer, on purpose")
        return self._moto(environ, start_response)


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server with the bucket `BUCKET`; the environment has credentials for it."""
    import boto3

    server = S3Server()
    before = dict(os.environ)
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_REGION": "us-east-1",
    }
    try:
        client = boto3.client("s3", endpoint_url=server.endpoint)
        client.create_bucket(Bucket=BUCKET)
        yield server
    finally:
        server.stop()
        os.environ.clear()
        os.environ.update(before)
