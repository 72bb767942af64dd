"""The metrics as a page: what a scraper can read is what it is sent."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from http import HTTPStatus

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from coordinator.web.messages import Handler, Request, Response, text

PATHS = ("/metrics", "/")
GZIP_LEVEL = 6
"""Two thirds of the time of gzip's own choice, 9, for a hundredth more bytes."""

_VERSIONS = re.compile(r"version=([^;,]*)")
_VERSION = re.compile(r"\s*[0-9]{1,3}(\.[0-9]{1,3}){0,2}\s*", re.ASCII)
_NEVER = re.compile(r"q\s*=\s*0(\.0*)?")


def metrics_page(registry: CollectorRegistry) -> Handler:
    """Answers /metrics; with `name[]` in the query, of those names alone."""

    def answer(request: Request) -> Response:
        if request.path not in PATHS:
            return text(HTTPStatus.NOT_FOUND, "there is no such page: /metrics is one")
        encode, content_type = _encoder(request.headers.get("accept", ""))
        names = request.query.get("name[]")
        # A registry that is restricted has all that an encoder needs.
        body = encode(registry.restricted_registry(names) if names else registry)
        if not _takes_gzip(request.headers.get("accept-encoding", "")):
            return Response(HTTPStatus.OK, content_type, body)
        packed = gzip.compress(body, compresslevel=GZIP_LEVEL, mtime=0)
        return Response(HTTPStatus.OK, content_type, packed, (("Content-Encoding", "gzip"),))

    return answer


def _encoder(accept: str) -> tuple[Callable[..., bytes], str]:
    """What writes the format that is accepted, and the format's name."""
    # The library believes every version that it is told, and names it in the answer.
    if all(_VERSION.fullmatch(version) for version in _VERSIONS.findall(accept)):
        return choose_encoder(accept)
    return choose_encoder("")


def _takes_gzip(accept_encoding: str) -> bool:
    """Source: RFC 9110, section 12.5.3: a weight of 0 means `not acceptable`."""
    for each in accept_encoding.lower().split(","):
        coding, *parameters = (part.strip() for part in each.split(";"))
        if coding == "gzip":
            return not any(_NEVER.fullmatch(parameter) for parameter in parameters)
    return False
