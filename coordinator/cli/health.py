"""`coordinator health`: whether nodes serve, as an exit status for containers and scripts."""

from __future__ import annotations

import argparse
from typing import Any

from coordinator.cli.connection import add_common_flags, credentials_of
from coordinator.cli.output import FAILED, Row, show
from coordinator.client.health import SERVING, Health

TIMEOUT_S = 2.0


def add_parser(commands: Any) -> None:  # Any: argparse does not name its type.
    """The command and its flags."""
    command = commands.add_parser(
        "health",
        help="check whether nodes serve",
        description="Check whether nodes serve: exit status 0 if all of them do, else 1.",
    )
    command.set_defaults(run=run)
    command.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="time limit per node (default: 2)",
    )
    add_common_flags(command)


def run(options: argparse.Namespace) -> int:
    """Print a row for each node; the exit status."""
    statuses: dict[str, str] = {}

    def rows() -> list[Row]:
        with Health(options.bootstrap, credentials=credentials_of(options)) as health:
            statuses.update(health.statuses(options.timeout))
        return [{"NODE": node, "STATUS": status} for node, status in statuses.items()]

    failed = show(options, rows)
    return failed or (0 if set(statuses.values()) == {SERVING} else FAILED)
