"""Ports of a node, tried before anything is opened, so that a taken one is named by its setting.

gRPC says only that it could not bind, and writes the reason to standard error by itself; pages
would find out after the shards are loaded.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coordinator.settings import Settings
from coordinator.settings.sources import ENVIRONMENT_PREFIX

_REASONS = {
    errno.EADDRINUSE: "another process listens there",
    errno.EACCES: "this user may not listen on this port (below 1024 that takes a privilege)",
    errno.EADDRNOTAVAIL: "no network interface of this machine has this address",
}
_OTHERWISE = {
    "listen": "port 0 lets the system choose one",
    "metrics_listen": "an empty one serves no metrics",
    "console_listen": "an empty one serves no console",
    "kafka_listen": "an empty one serves no Kafka clients",
}


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Address at which a node is to listen. `node`: its number on this machine; 0: it is alone."""

    setting: str
    host: str
    port: int
    node: int = 0

    def __str__(self) -> str:
        of_node = f" of node {self.node}" if self.node else ""
        return f"{self.setting}{of_node}, {self.host}:{self.port}"


def addresses(settings: Settings, *, node: int = 0, shift: int = 0) -> Iterator[ListenAddress]:
    """The addresses of a node: gRPC, metrics, console, Kafka's clients.

    Args:
        shift: added to the ports that are given.
    """
    config = settings.serving
    for setting, address in (
        ("listen", config.listen_address),
        ("metrics_listen", config.metrics_address),
        ("console_listen", config.console_address),
        ("kafka_listen", settings.kafka.kafka_address),
    ):
        if address is not None:
            host, port = address
            yield ListenAddress(setting, host, port + shift if port else 0, node)


def problems(wanted: Iterable[ListenAddress]) -> list[str]:
    """A sentence for each address at which nothing can listen now; all are held until the end."""
    failures = []
    bound: list[ListenAddress] = []
    with contextlib.ExitStack() as held:
        for address in wanted:
            try:
                _bind(address, held)
            except OSError as error:
                rival = next(
                    (
                        bound_address
                        for bound_address in bound
                        if bound_address.port == address.port
                    ),
                    None,
                )
                failures.append(_sentence(address, error, rival))
            else:
                bound.append(address)
    return failures


def _bind(address: ListenAddress, held: contextlib.ExitStack) -> None:
    """Listen at each IP address of the host.

    Raises:
        OSError: the port is taken at one of them, or none can be bound.
    """
    host = address.host.strip("[]")
    refused: OSError | None = None
    bound = 0
    for family, _, _, _, partition in socket.getaddrinfo(
        host, address.port, type=socket.SOCK_STREAM
    ):
        # gRPC takes the port of IPv4 too.
        is_dual = address.setting == "listen" and host == "::" and socket.has_dualstack_ipv6()
        try:
            listener = socket.create_server(partition, family=family, dualstack_ipv6=is_dual)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
            refused = error  # `localhost` is ::1 too, where there may be no IPv6.
        else:
            held.enter_context(listener)
            bound += 1
    if refused is not None and not bound:
        raise refused


def _sentence(address: ListenAddress, error: OSError, rival: ListenAddress | None) -> str:
    if isinstance(error, socket.gaierror):
        reason = f"the host cannot be resolved ({error.strerror})"
    elif error.errno == errno.EADDRINUSE and rival is not None:
        reason = f"that is the port of {rival}"
    else:
        reason = _REASONS.get(error.errno or 0) or f"{error.strerror}".lower()
    flag = "--" + address.setting.replace("_", "-")
    variable = ENVIRONMENT_PREFIX + address.setting.upper()
    if address.node:
        other = "the first node's is given, and each further node's is 10 higher"
    else:
        other = _OTHERWISE[address.setting]
    return (
        f"cannot listen at {address}: {reason}; "
        f"choose another with {flag} HOST:PORT or {variable} ({other})"
    )
