"""Flags of commands that connect to nodes: addresses, TLS and token, and where else they come from.

A value is taken from its flag, else from its variable, else its default.
"""

from __future__ import annotations

import argparse
import os
import re
from typing import TYPE_CHECKING

from coordinator.cli.flags import WrongUsage, add_output_flag, add_watch_flag
from coordinator.environment import BOOTSTRAP, CLIENT_PREFIX

if TYPE_CHECKING:
    from coordinator.dial import Credentials

DEFAULT_BOOTSTRAP = "127.0.0.1:7400"
FOUND_S = 2.0
"""Time to find a node of a store."""
_FILES = {
    "--tls-ca": "PEM file of the certificate authorities that signed the nodes' certificates",
    "--tls-cert": "PEM file of your client certificate",
    "--tls-key": "PEM file of the key to --tls-cert",
    "--token-file": "file with your bearer token",
}
_SWITCHES = {
    "--tls": "use TLS, and trust the system's certificate authorities",
    "--insecure": "send the token even without TLS",
}
_PROXY = "--proxy"
_ADDRESS = re.compile(
    r"(?:[^\s/:]+|\[[0-9A-Fa-f:.%\w]+\]):(\d{1,5})|(?:unix|dns|ipv4|ipv6|xds):\S+"
)


def add_common_flags(
    command: argparse.ArgumentParser, *kinds: type, can_watch: bool = False
) -> None:
    """Add the flags of the connection and of the output, and `--watch` to commands that read."""
    add_output_flag(command, *kinds)
    if can_watch:
        add_watch_flag(command)
    _add_connection_flags(command)
    command.set_defaults(connects=True)


def _add_connection_flags(command: argparse.ArgumentParser) -> None:
    """Add the flags of addresses and credentials."""
    flags = command.add_argument_group("connection")
    flags.add_argument(
        "--bootstrap",
        metavar="HOST:PORT[,…]",
        help="addresses of one or more nodes, or URL of the store of embedded ones (default: "
        f"{DEFAULT_BOOTSTRAP}) [{BOOTSTRAP}]",
    )
    for flag, meaning in _FILES.items():
        flags.add_argument(flag, metavar="FILE", help=f"{meaning} [{_variable(flag)}]")
    flags.add_argument(
        _PROXY,
        metavar="URL",
        help="HTTP proxy to go through, http://HOST:PORT; without it none is used, whatever "
        f"http_proxy says [{_variable(_PROXY)}]",
    )
    for flag, meaning in _SWITCHES.items():
        flags.add_argument(
            flag, action="store_true", default=None, help=f"{meaning} [{_variable(flag)}]"
        )


def resolve(options: argparse.Namespace) -> None:
    """Give every option of the connection its value, wherever it comes from.

    Raises:
        WrongUsage: an address is none. CoordinatorError: no node serves the store that is named.
    """
    # Its lines from C++ are for those who debug it; errors come back as values.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from coordinator.client.validation import STORES
    from coordinator.dial import Credentials

    environment = os.environ
    options.bootstrap = options.bootstrap or environment.get(BOOTSTRAP) or DEFAULT_BOOTSTRAP
    for flag in (*_FILES, _PROXY):
        key = _key(flag)
        setattr(options, key, getattr(options, key) or environment.get(_variable(flag), ""))
    for flag in _SWITCHES:
        key = _key(flag)
        flag_value = environment.get(_variable(flag), "").lower() in ("true", "1", "yes")
        setattr(options, key, bool(getattr(options, key) or flag_value))
    nodes = None
    if options.bootstrap.startswith(STORES):
        from coordinator.client.embedding import embedded

        nodes = embedded(options.bootstrap, serve=False, timeout_s=FOUND_S)
        nodes.open()
    else:
        _check_addresses(options.bootstrap)
    options.credentials = Credentials(
        tls=options.tls,
        ca_file=options.tls_ca,
        cert_file=options.tls_cert,
        key_file=options.tls_key,
        token_file=options.token_file,
        insecure=options.insecure,
        proxy=options.proxy,
        nodes=nodes,
    )


def _check_addresses(bootstrap: str) -> None:
    """Refuse what is not addresses of nodes, separated by commas.

    Raises:
        WrongUsage: with the first that is none.
    """
    for address in bootstrap.split(","):
        match = _ADDRESS.fullmatch(address)
        if match is None or (match[1] is not None and not 0 < int(match[1]) < 65_536):
            raise WrongUsage(f"{address or 'an empty text'} is no address: give HOST:PORT")


def credentials_of(options: argparse.Namespace) -> Credentials:
    credentials: Credentials = options.credentials
    return credentials


# --- Inside -------------------------------------------------------------------------------------


def _key(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _variable(flag: str) -> str:
    return CLIENT_PREFIX + _key(flag).upper()
