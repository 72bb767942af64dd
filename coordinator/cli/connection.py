"""Flags of commands that connect to nodes: addresses, TLS and token."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from coordinator.cli.flags import add_output_flag, add_watch_flag
from coordinator.environment import BOOTSTRAP, CLIENT_PREFIX

if TYPE_CHECKING:
    from coordinator.dial import Credentials

DEFAULT_BOOTSTRAP = "127.0.0.1:7400"


def add_common_flags(
    command: argparse.ArgumentParser, *kinds: type, can_watch: bool = False
) -> None:
    """Add the flags of the connection and of the output, and `--watch` to commands that read."""
    add_output_flag(command, *kinds)
    if can_watch:
        add_watch_flag(command)
    flags = command.add_argument_group("connection")
    flags.add_argument(
        "--bootstrap",
        default=os.environ.get(BOOTSTRAP) or DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT[,…]",
        help=f"addresses of one or more nodes (default: {DEFAULT_BOOTSTRAP}) [{BOOTSTRAP}]",
    )
    for flag, meaning in (
        ("--tls-ca", "PEM file of the certificate authorities that signed the nodes' certificates"),
        ("--tls-cert", "PEM file of your client certificate"),
        ("--tls-key", "PEM file of the key to --tls-cert"),
        ("--token-file", "file with your bearer token"),
    ):
        variable = CLIENT_PREFIX + flag.removeprefix("--").replace("-", "_").upper()
        flags.add_argument(flag, metavar="FILE", help=f"{meaning} [{variable}]")
    flags.add_argument(
        "--tls",
        action="store_true",
        help=f"use TLS, and trust the system's certificate authorities [{CLIENT_PREFIX}TLS]",
    )
    flags.add_argument(
        "--insecure",
        action="store_true",
        help=f"send the token even without TLS [{CLIENT_PREFIX}INSECURE]",
    )


def credentials_of(options: argparse.Namespace) -> Credentials:
    """Credentials from the flags; from the environment where a flag is missing."""
    from coordinator.dial import Credentials

    told = Credentials.from_environment()
    return replace(
        told,
        tls=options.tls or told.tls,
        ca_file=options.tls_ca or told.ca_file,
        cert_file=options.tls_cert or told.cert_file,
        key_file=options.tls_key or told.key_file,
        token_file=options.token_file or told.token_file,
        insecure=options.insecure or told.insecure,
    )
