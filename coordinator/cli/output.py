"""Rows on standard output: a table to read, JSON or YAML to work on."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace

import grpc

from coordinator.dial import CLIENT_PREFIX, Credentials
from coordinator.handshake import tls_trouble
from coordinator.printable import printable

Row = dict[str, str]
FAILED = 1
REFUSALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


def _table(rows: list[Row]) -> str:
    if not rows:
        return ""
    columns = list(rows[0])
    rows = [{c: printable(row[c]) for c in columns} for row in rows]
    widths = {c: max(len(c), *(len(row[c]) for row in rows)) for c in columns}
    lines = [{c: c for c in columns}, *rows]
    return "\n".join("  ".join(f"{row[c]:{widths[c]}}" for c in columns).rstrip() for row in lines)


def as_json(content: object, indent: int | None = None) -> str:
    """JSON in ASCII with DEL escaped, which `json` leaves as it is though it is invisible."""
    return json.dumps(content, indent=indent).replace("\x7f", "\\u007f")


def _yaml(rows: list[Row]) -> str:
    """A list of flat mappings. A JSON string is a YAML string up to U+FFFF."""
    if not rows:
        return "[]"
    lines = []
    for row in rows:
        for number, (key, value) in enumerate(row.items()):
            lines.append(f'{"  " if number else "- "}"{_quoted(key)}": "{_quoted(value)}"')
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "".join(f"\\U{ord(c):08x}" if ord(c) > 0xFFFF else as_json(c)[1:-1] for c in text)


FORMATS: dict[str, Callable[[list[Row]], str]] = {
    "table": _table,
    "json": lambda rows: as_json(rows, indent=2),
    "yaml": _yaml,
}
"""Renderers by the name that `--output` has for them."""


def add_common_flags(command: argparse.ArgumentParser) -> None:
    """Add `--bootstrap`, the credentials' flags and `--output`."""
    command.add_argument(
        "--bootstrap",
        default="127.0.0.1:7400",
        metavar="HOST:PORT[,…]",
        help="addresses of one or more nodes (default: 127.0.0.1:7400)",
    )
    for flag, meaning in (
        ("--tls-ca", "PEM file of the certificate authorities that signed the nodes' certificates"),
        ("--tls-cert", "PEM file of your client certificate"),
        ("--tls-key", "PEM file of the key to --tls-cert"),
        ("--token-file", "file with your bearer token"),
    ):
        variable = CLIENT_PREFIX + flag.removeprefix("--").replace("-", "_").upper()
        command.add_argument(flag, metavar="FILE", help=f"{meaning} (default: ${variable})")
    command.add_argument(
        "--tls", action="store_true", help="use TLS, and trust the system's certificate authorities"
    )
    command.add_argument("--insecure", action="store_true", help="send the token even without TLS")
    add_output_flag(command)


def add_output_flag(command: argparse.ArgumentParser) -> None:
    """Add `--output`."""
    command.add_argument(
        "-o", "--output", choices=tuple(FORMATS), default="table", help="format (default: table)"
    )


def credentials_of(options: argparse.Namespace) -> Credentials:
    """Credentials from the flags; from the environment where a flag is missing."""
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


def complain(words: object) -> None:
    """Print an error on standard error, as one line."""
    print(f"coordinator: {printable(str(words), None)}", file=sys.stderr)


def complaint(options: argparse.Namespace, error: grpc.RpcError) -> str:
    """The error message for a call that failed."""
    if error.code() in REFUSALS:
        return f"{options.bootstrap} refuses: {error.details()}"
    told = f"no answer from {options.bootstrap}: {error.details()}"
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        if why := tls_trouble(options.bootstrap.split(",")[0], credentials_of(options)):
            return f"{told}: {why}"
    return told


def show(options: argparse.Namespace, action: Callable[[], list[Row]]) -> int:
    """Print the rows of an action, or its error; the exit status."""
    try:
        rows = action()
    except grpc.RpcError as error:
        complain(complaint(options, error))
        return FAILED
    except BrokenPipeError:
        raise  # `main` handles it.
    except (LookupError, ValueError, OSError) as error:
        complain(error.args[-1])
        return FAILED
    if text := FORMATS[options.output](rows):
        print(text, flush=True)
    return 0
