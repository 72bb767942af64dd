"""Parsers of settings with a syntax: addresses, stores, shares."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass


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
    """`kind`: etcd or zookeeper; `name`: prefix of all keys of this cluster."""

    kind: str
    endpoints: tuple[str, ...]
    name: str


def shared_store(value: str) -> SharedStore | None:
    """Kind, endpoints and name of a shared store; None for sqlite and memory.

    Raises:
        ValueError: it is none of these.
    """
    if value in ("sqlite", "memory"):
        return None
    found = re.fullmatch(r"(etcd|zookeeper)://([^/]+)/([\w.-]+)", value)
    if found is None:
        raise ValueError(
            "it may be sqlite, memory, "
            "etcd://HOST:PORT,HOST:PORT/NAME or zookeeper://HOST:PORT,HOST:PORT/NAME"
        )
    kind, endpoints, name = found.groups()
    return SharedStore(kind, tuple(endpoints.split(",")), name)


def fixed_share(value: str) -> tuple[int, int]:
    """(K, N) of K/N; (1, 1) if the text is empty.

    Raises:
        ValueError: it is not K/N with K from 1 to N.
    """
    found = re.fullmatch(r"([1-9]\d{0,2})/([1-9]\d{0,2})", value or "1/1")
    if found is None or int(found[1]) > int(found[2]):
        raise ValueError("give K/N, K from 1 to N")
    return int(found[1]), int(found[2])
