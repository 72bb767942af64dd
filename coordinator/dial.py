"""gRPC channels to nodes: plain text or TLS, client certificate, bearer token.

Used by the client library, the command line, and nodes among each other. Certificates are read when
a channel is opened and the token at every call, so rotated files are picked up. An HTTP proxy is
used only if the credentials name one: gRPC by itself obeys `http_proxy`, for the loopback too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import grpc

from coordinator.environment import CLIENT_PREFIX
from coordinator.node_source import NodeSource

Options = Sequence[tuple[str, Any]]  # Any: gRPC's own settings are of several types.
NO_PROXY: Options = (("grpc.enable_http_proxy", 0),)
"""Options of a channel that goes to its address, whatever the environment says."""
Metadata = tuple[tuple[str, str], ...]
FileState = tuple[int, int, int] | None


class CannotDial(ValueError):
    """A file cannot be read, or a token would travel in plain text. The message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Credentials of a client: trusted authorities, client certificate, bearer token.

    Args:
        tls: use TLS with the system's authorities. Any file but token_file implies TLS.
        ca_file: PEM file of the authorities to trust instead.
        cert_file, key_file: PEM files for mutual TLS.
        token_file: file with a bearer token, read again for every call.
        token: the token itself, if there is no file.
        insecure: send the token in plain text beyond the loopback too.
        proxy: HTTP proxy to go through, http://[USER:PASSWORD@]HOST:PORT; empty: none.
        nodes: what finds the nodes, and gives the token; None: their addresses are known.
    """

    tls: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    token_file: str = ""
    token: str = field(default="", repr=False)
    insecure: bool = False
    proxy: str = field(default="", repr=False)
    nodes: NodeSource | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Credentials:
        """Read COORDINATOR_CLIENT_TLS, _TLS_CA, _TLS_CERT, _TLS_KEY, _TOKEN_FILE, _PROXY, …"""

        def text(name: str) -> str:
            return environment.get(CLIENT_PREFIX + name, "")

        return cls(
            tls=text("TLS").lower() in _YES,
            ca_file=text("TLS_CA"),
            cert_file=text("TLS_CERT"),
            key_file=text("TLS_KEY"),
            token_file=text("TOKEN_FILE"),
            insecure=text("INSECURE").lower() in _YES,
            proxy=text("PROXY"),
        )

    @property
    def is_tls(self) -> bool:
        """True if channels are encrypted."""
        return bool(self.tls or self.ca_file or self.cert_file or self.key_file)

    @property
    def through(self) -> str:
        """The proxy as messages name it, without its password; empty: there is none."""
        return f" through the proxy {self.proxy.rpartition('@')[2]}" if self.proxy else ""

    def finding(self, bootstrap: object) -> Credentials:
        """These, for nodes that `bootstrap` finds, if it does."""
        return replace(self, nodes=bootstrap) if isinstance(bootstrap, NodeSource) else self

    def dialed(self, address: str, timeout_s: float) -> tuple[str, Credentials]:
        """The target to dial for an address, and its credentials. Blocks if nodes are to be found.

        Raises:
            CoordinatorError: none is found.
        """
        if self.nodes is None or address != str(self.nodes):
            return address, self
        node = self.nodes.find_node(timeout_s)
        if not node.token:
            return node.address, self
        insecure = self.insecure or node.is_insecure
        return node.address, replace(self, token=node.token, insecure=insecure)

    def state(self) -> tuple[FileState, ...]:
        """Fingerprint of the certificate files; differs when one of them was changed."""
        return states([path for path in self._files if path])

    def metadata(self) -> Metadata | None:
        """Metadata with the bearer token; None without a token.

        Raises:
            CannotDial: the token's file cannot be read.
        """
        token = _read(self.token_file).decode().strip() if self.token_file else self.token
        return (("authorization", f"Bearer {token}"),) if token else None

    def open(self, address: str, options: Options | None = None) -> grpc.Channel:
        """A blocking channel; all its calls carry the token.

        Raises:
            CannotDial: a file cannot be read, or the token would travel in plain text.
        """
        secured, options = self._secured(address), self._with_proxy(options)
        if secured is None:
            channel = grpc.insecure_channel(address, options=options)
        else:
            channel = grpc.secure_channel(address, secured, options=options)
        return (
            grpc.intercept_channel(channel, _Bearer(self.metadata)) if self._has_token else channel
        )

    def open_aio(self, address: str, options: Options | None = None) -> grpc.aio.Channel:
        """A channel for asyncio. Callers pass `metadata()` to each call.

        Raises:
            CannotDial: as `open`.
        """
        secured, options = self._secured(address), self._with_proxy(options)
        if secured is None:
            return grpc.aio.insecure_channel(address, options=options)
        return grpc.aio.secure_channel(address, secured, options=options)

    # --- Inside ---

    def _with_proxy(self, options: Options | None) -> Options:
        proxy: Options = (("grpc.http_proxy", self.proxy),) if self.proxy else NO_PROXY
        return (*(options or ()), *proxy)

    @property
    def _files(self) -> tuple[str, str, str]:
        return self.ca_file, self.cert_file, self.key_file

    @property
    def _has_token(self) -> bool:
        return bool(self.token or self.token_file)

    def _secured(self, address: str) -> grpc.ChannelCredentials | None:
        if self.is_tls:
            if bool(self.cert_file) != bool(self.key_file):
                raise CannotDial("a certificate needs its key, and a key its certificate")
            roots, chain, key = (_read(path) if path else None for path in self._files)
            return grpc.ssl_channel_credentials(roots, key, chain)
        host = address.rpartition(":")[0]
        if self._has_token and not self.insecure and not is_loopback(host):
            raise CannotDial(
                f"the token would travel to {address} in plain text: use TLS, or say that the "
                "network is safe (insecure)"
            )
        return None


_YES = ("true", "1", "yes")


def address_of(host: str, port: int) -> str:
    """HOST:PORT to dial; an IPv6 address is put into brackets."""
    is_bare_ipv6 = ":" in host and not host.startswith("[")
    return f"[{host}]:{port}" if is_bare_ipv6 else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """True if only this machine can reach the host."""
    import ipaddress  # Only clients with a token ask.

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def states(paths: Sequence[str]) -> tuple[FileState, ...]:
    """Fingerprints of files; one differs when its file was written, replaced or removed."""
    states: list[FileState] = []
    for path in paths:
        try:
            about = os.stat(path)
        except OSError:
            states.append(None)
        else:
            states.append((about.st_ino, about.st_mtime_ns, about.st_size))
    return tuple(states)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise CannotDial(f"cannot read {path}: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class _Details(grpc.ClientCallDetails):
    """The details of one call. (Without a docstring, `dataclass` writes one, slowly.)"""

    method: str
    timeout: float | None
    metadata: tuple[tuple[str, str | bytes], ...] | None
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


class _Bearer(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
):
    """Adds the token to unary and server-streaming calls, all that the admin clients make."""

    def __init__(self, metadata: Callable[[], Metadata | None]) -> None:
        self._metadata = metadata

    def intercept_unary_unary(self, call: Any, details: Any, request: Any) -> Any:
        return call(self._with_token(details), request)

    def intercept_unary_stream(self, call: Any, details: Any, request: Any) -> Any:
        return call(self._with_token(details), request)

    def _with_token(self, details: Any) -> _Details:
        return _Details(
            details.method,
            details.timeout,
            (*(details.metadata or ()), *(self._metadata() or ())),
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )
