"""Parsers of settings with a syntax: addresses, stores, shares."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit


def address(value: str) -> tuple[str, int]:
    """Host and port.

    Raises:
        ValueError: it is not HOST:PORT.
    """
    host, _, port = value.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
        raise ValueError("give HOST:PORT")
    if ":" in host and not re.fullmatch(r"\[[^\[\]]+\]", host):
        raise ValueError("give HOST:PORT, and an IPv6 address in brackets: [::1]:7400")
    return host, int(port)


def address_or_none(value: str) -> tuple[str, int] | None:
    """Like `address`; None if the text is empty."""
    return address(value) if value else None


def is_wildcard(host: str) -> bool:
    """True for a host that means all addresses of a machine: none of them is one to connect to."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return host in ("*", "0")


@dataclass(frozen=True, slots=True)
class SharedStore:
    """A store of several nodes.

    kind: etcd, zookeeper or postgresql. endpoints: HOST:PORT of its servers. name: of this cluster
    of coordinators: prefix of its keys, or schema of its tables. url: of the database, as libpq
    reads it; empty: the store has none.
    """

    kind: str
    endpoints: tuple[str, ...]
    name: str
    url: str = ""


def shared_store(value: str) -> SharedStore | None:
    """Kind, endpoints and name of a shared store; None for sqlite and memory.

    Raises:
        ValueError: it is none of these.
    """
    if value in ("sqlite", "memory"):
        return None
    if value.startswith(("postgresql://", "postgres://")):
        return _postgres(value)
    found = re.fullmatch(r"(etcd|zookeeper)://([^/]+)/([\w.-]+)", value)
    if found is None:
        raise ValueError(
            "it may be sqlite, memory, etcd://HOST:PORT,HOST:PORT/NAME, "
            "zookeeper://HOST:PORT,HOST:PORT/NAME or "
            "postgresql://HOST:PORT,HOST:PORT/DATABASE?cluster=NAME"
        )
    kind, endpoints, name = found.groups()
    return SharedStore(kind, tuple(endpoints.split(",")), name)


def _postgres(value: str) -> SharedStore:
    """The cluster of a PostgreSQL URL is ours; everything else in it is libpq's."""
    url = urlsplit(value)
    parameters = parse_qsl(url.query, keep_blank_values=True)
    names = [given for key, given in parameters if key == "cluster"] or ["coordinator"]
    if len(names) > 1 or not re.fullmatch(r"[A-Za-z_][\w-]{0,62}", names[0]):
        raise ValueError("cluster names a schema: a letter, then up to 62 letters, digits, _ and -")
    rest = urlencode([(key, given) for key, given in parameters if key != "cluster"])
    servers = url.netloc.rpartition("@")[2]
    return SharedStore(
        "postgresql", tuple(servers.split(",")), names[0], urlunsplit(url._replace(query=rest))
    )


def without_password(value: str) -> str:
    """A store as it may be shown: passwords in its URL are left out."""
    url = urlsplit(value)
    who, at, servers = url.netloc.rpartition("@")
    kept = [(key, given) for key, given in parse_qsl(url.query) if key != "password"]
    return urlunsplit(
        url._replace(netloc=f"{who.partition(':')[0]}{at}{servers}", query=urlencode(kept))
    )


def fixed_share(value: str) -> tuple[int, int]:
    """(K, N) of K/N; (1, 1) if the text is empty.

    Raises:
        ValueError: it is not K/N with K from 1 to N.
    """
    found = re.fullmatch(r"([1-9]\d{0,2})/([1-9]\d{0,2})", value or "1/1")
    if found is None or int(found[1]) > int(found[2]):
        raise ValueError("give K/N, K from 1 to N")
    return int(found[1]), int(found[2])
