"""Parsers of settings with a syntax: addresses, stores, shares."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import unquote

from coordinator.data_folder import SCHEME, path_of


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
    """Kind, endpoints and name of a shared store; None for those of one machine.

    Raises:
        ValueError: it is none of these.
    """
    if value in ("sqlite", "memory"):
        return None
    if value.startswith(SCHEME):
        path_of(value)
        return None
    if value.startswith(("postgresql://", "postgres://")):
        return _postgres(value)
    match = re.fullmatch(r"(etcd|zookeeper)://([^/]+)/([\w.-]+)", value)
    if match is None:
        raise ValueError(
            "it may be sqlite, memory, sqlite:///FOLDER, etcd://HOST:PORT,HOST:PORT/NAME, "
            "zookeeper://HOST:PORT,HOST:PORT/NAME or "
            "postgresql://HOST:PORT,HOST:PORT/DATABASE?cluster=NAME"
        )
    kind, endpoints, name = match.groups()
    return SharedStore(kind, tuple(endpoints.split(",")), name)


def _postgres(value: str) -> SharedStore:
    """The cluster of a PostgreSQL URL is ours; everything else in it is libpq's, as it stands."""
    scheme, who, where, query = _parts_of_url(value)
    names = [unquote(option.partition("=")[2]) for option in query if _key(option) == "cluster"]
    names = names or ["coordinator"]
    if len(names) > 1:
        raise ValueError("cluster names one schema")
    name = cluster_name(names[0])
    kept = "&".join(option for option in query if _key(option) != "cluster")
    url = f"{scheme}{who}{where}{'?' * bool(kept)}{kept}"
    return SharedStore("postgresql", tuple(where.partition("/")[0].split(",")), name, url)


def cluster_name(name: str) -> str:
    """The name of a cluster, which is that of its schema.

    Raises:
        ValueError: it is none, or so long that the server would cut it.
    """
    if not re.fullmatch(r"[A-Za-z_][\w-]*", name) or len(name.encode()) > 63:
        raise ValueError(
            "cluster names a schema: a letter, then letters, digits, _ and -, in 63 bytes"
        )
    return name


def without_password(value: str) -> str:
    """A store as it may be shown: passwords in its URL are left out.

    So they are from a URL that libpq refuses since a character of the password is not encoded.
    """
    if "://" not in value:
        return value
    scheme, who, where, query = _parts_of_url(value)
    asked = "&".join(query)
    if "@" in where or "@" in asked.partition("=")[0] or ("@" in asked and not who):
        text = value.removeprefix(scheme)
        user = re.split("[:/?@]", text, maxsplit=1)[0]
        return f"{scheme}{user}@{text.rpartition('@')[2]}"
    user, at = who.rstrip("@").partition(":")[0], "@" * bool(who)
    kept = "&".join(option for option in query if not re.search("password|secret", _key(option)))
    return f"{scheme}{user}{at}{where}{'?' * bool(kept)}{kept}"


def _parts_of_url(url: str) -> tuple[str, str, str, list[str]]:
    """Scheme, user with `@`, hosts with database, and the query's parts: as libpq divides a URL."""
    match = re.fullmatch(r"(\w*://)([^/@]*@)?([^?]*)\??(.*)", url, re.DOTALL)
    assert match is not None, "a URL has a scheme"
    scheme, who, where, query = match.groups(default="")
    return scheme, who, where, query.split("&") if query else []


def _key(part: str) -> str:
    return unquote(part.partition("=")[0]).lower()


def fixed_share(value: str) -> tuple[int, int]:
    """(K, N) of K/N; (1, 1) if the text is empty.

    Raises:
        ValueError: it is not K/N with K from 1 to N.
    """
    match = re.fullmatch(r"([1-9]\d{0,2})/([1-9]\d{0,2})", value or "1/1")
    if match is None or int(match[1]) > int(match[2]):
        raise ValueError("give K/N, K from 1 to N")
    return int(match[1]), int(match[2])
