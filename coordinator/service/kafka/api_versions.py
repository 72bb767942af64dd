"""ApiVersions: the APIs and versions that are offered, to anybody who asks.

A client asks before it knows the versions of this node. So a version that is not known is answered
in the body of version 0, which every client reads, with the list (KIP-511).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from coordinator.kafka import errors
from coordinator.kafka.apis import API_VERSIONS, Api
from coordinator.kafka.codec import Answer
from coordinator.service.kafka.requests import KafkaRequest

SOFTWARE_FROM = 3
"""The request names the client's library."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_LENGTH = 100


async def api_versions(request: KafkaRequest, offered: Iterable[Api]) -> Answer:
    """Answer an ApiVersions, and keep the name of the client's library."""
    if request.version >= SOFTWARE_FROM:
        body, software = request.body, request.software
        name, version = body.client_software_name, body.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return {"error_code": errors.INVALID_REQUEST}
        software.name, software.version = name[:SOFTWARE_LENGTH], version[:SOFTWARE_LENGTH]
    return {"api_keys": _listed(tuple(offered))}


def unknown_version(offered: Iterable[Api]) -> Answer:
    """Answer an ApiVersions of a version that is not known, in version 0."""
    return {"error_code": errors.UNSUPPORTED_VERSION, "api_keys": _listed(tuple(offered))}


NO_ROOM: Answer = {"error_code": errors.THROTTLING_QUOTA_EXCEEDED, "api_keys": ()}
"""Answer, in version 0, to a client for whose connection there is no room. Of an ended connection
clients tell nothing, or guess at TLS; of this error they tell in words."""


@cache
def _listed(offered: tuple[Api, ...]) -> list[Answer]:
    return [
        {"api_key": api.key, "min_version": api.low, "max_version": api.high}
        for api in sorted(offered, key=lambda api: api.key)
    ]


ANSWERED_IN = API_VERSIONS.low
"""Version of the answer to a version that is not known."""
