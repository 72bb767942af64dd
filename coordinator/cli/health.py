"""`coordinator health`: whether nodes serve, as an exit status for containers and scripts."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from coordinator.cli.connection import add_common_flags, credentials_of
from coordinator.cli.flags import seconds
from coordinator.cli.output import Output, show
from coordinator.observe.rows import column

TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRow:
    """The health of a node."""

    node: str = column("HOST:PORT of the node, as --bootstrap has it.")
    status: str = column(
        "`SERVING`; `NOT_SERVING`: it loads or drains; `UNREACHABLE`: no answer in time, or "
        "another program.",
        is_state=True,
    )


def add_parsers(commands: Any) -> None:  # Any: argparse does not name its type.
    """The command and its flags."""
    command = commands.add_parser(
        "health",
        help="check whether nodes serve",
        description="Check whether nodes serve: exit status 0 if all of them do, else 1.",
    )
    command.set_defaults(run=run)
    command.add_argument(
        "--timeout",
        type=seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help=f"time limit per node (default: {TIMEOUT_S:g})",
    )
    add_common_flags(command, HealthRow, can_watch=True)


def run(options: argparse.Namespace) -> int:
    """Print a row for each node; the exit status."""
    from coordinator.operator.health import SERVING, Health

    def health() -> Output:
        with Health(options.bootstrap, credentials=credentials_of(options)) as nodes:
            statuses = nodes.statuses(options.timeout)
        rows = [HealthRow(node=node, status=status) for node, status in statuses.items()]
        return Output(HealthRow, rows, has_failed=set(statuses.values()) != {SERVING})

    return show(options, health)
