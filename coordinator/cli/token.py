"""`coordinator token new`: create a bearer token and its line for auth_tokens_file."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator.cli.flags import add_output_flag
from coordinator.cli.output import Output, show
from coordinator.cli.parser import add_actions
from coordinator.observe.rows import column


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A token that was created."""

    principal: str = column("Owner of the token; rules call it `token:PRINCIPAL`.")
    line: str = column("Line for auth_tokens_file, with the hash of the token.")
    file: str = column("File that holds the token.")


def add_parsers(commands: Any) -> None:  # Any: argparse does not name its type.
    text = "create bearer tokens"
    actions = add_actions(commands.add_parser("token", help=text, description=text))
    text = "create a token and print its line for auth_tokens_file"
    new = actions.add_parser("new", help=text, description=text)
    new.set_defaults(run=lambda options: show(options, lambda: _new(options)))
    new.add_argument("principal", help="owner of the token; rules call it token:PRINCIPAL")
    new.add_argument(
        "--file",
        type=Path,
        metavar="FILE",
        required=True,
        help="new file for the token itself, readable by you alone",
    )
    add_output_flag(new, TokenRow)


def _new(options: argparse.Namespace) -> Output:
    from coordinator.security.errors import CannotSecure
    from coordinator.security.tokens import line_for, new_token

    token = new_token()
    try:
        line = line_for(options.principal, token)
    except CannotSecure as error:
        raise LookupError(str(error)) from error
    handle = os.open(options.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(f"{token}\n")
    row = TokenRow(principal=options.principal, line=line, file=str(options.file))
    return Output(TokenRow, [row], text=line)
