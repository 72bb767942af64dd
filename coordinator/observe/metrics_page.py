"""The page `/metrics`, in the exposition format and encoding that the scraper accepts."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from http import HTTPStatus

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from coordinator.web.messages import Handler, HttpRequest, Response, text

PATHS = ("/metrics", "/")
GZIP_LEVEL = 6
"""Takes two thirds of the time of gzip's default, 9, for 1 % more bytes."""

_VERSIONS = re.compile(r"version=([^;,]*)")
_VERSION = re.compile(r"\s*[0-9]{1,3}(\.[0-9]{1,3}){0,2}\s*", re.ASCII)
_NEVER = re.compile(r"q\s*=\s*0(\.0*)?")


def metrics_page(registry: CollectorRegistry) -> Handler:
    """The handler of /metrics; `name[]` in the query restricts it to those names."""

    def answer(request: HttpRequest) -> Response:
        if request.path not in PATHS:
            return text(HTTPStatus.NOT_FOUND, "no such page; the metrics are at /metrics")
        encode, content_type = _encoder(request.headers.get("accept", ""))
        names = request.query.get("name[]")
        # A restricted registry has all methods that an encoder calls.
        body = encode(registry.restricted_registry(names) if names else registry)
        if not _takes_gzip(request.headers.get("accept-encoding", "")):
            return Response(HTTPStatus.OK, content_type, body)
        packed = gzip.compress(body, compresslevel=GZIP_LEVEL, mtime=0)
        return Response(HTTPStatus.OK, content_type, packed, (("Content-Encoding", "gzip"),))

    return answer


def _encoder(accept: str) -> tuple[Callable[..., bytes], str]:
    """The encoder of the accepted format, and its content type."""
    # The library would echo any version that the client sends in the content type.
    if all(_VERSION.fullmatch(version) for version in _VERSIONS.findall(accept)):
        return choose_encoder(accept)
    return choose_encoder("")


def _takes_gzip(accept_encoding: str) -> bool:
    """True if gzip is accepted. Source: RFC 9110, 12.5.3: weight 0 means `not acceptable`."""
    for accepted in accept_encoding.lower().split(","):
        coding, *parameters = (part.strip() for part in accepted.split(";"))
        if coding == "gzip":
            return not any(_NEVER.fullmatch(parameter) for parameter in parameters)
    return False
