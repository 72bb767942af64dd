"""`coordinator token new`: create a bearer token and its line for auth_tokens_file."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from coordinator.cli.output import FAILED, complain
from coordinator.printable import printable
from coordinator.security.errors import CannotSecure
from coordinator.security.tokens import line_for, new_token


def add_parser(commands: Any) -> None:  # Any: argparse does not name its type.
    """The command and its action."""
    token = commands.add_parser("token", help="create bearer tokens")
    actions = token.add_subparsers(required=True, metavar="ACTION")
    text = "create a token and print its line for auth_tokens_file"
    new = actions.add_parser("new", help=text, description=text)
    new.set_defaults(run=_new)
    new.add_argument("principal", help="owner of the token; rules call it token:PRINCIPAL")
    new.add_argument(
        "--file",
        type=Path,
        metavar="FILE",
        required=True,
        help="new file for the token itself, readable by you alone",
    )


def _new(options: argparse.Namespace) -> int:
    token = new_token()
    try:
        line = line_for(options.principal, token)
        handle = os.open(options.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except (CannotSecure, OSError) as error:
        complain(error)
        return FAILED
    with os.fdopen(handle, "w") as file:
        file.write(f"{token}\n")
    print(printable(line, None))
    return 0
