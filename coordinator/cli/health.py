"""`coordinator health`: whether nodes serve, as an exit status for containers and scripts."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

from coordinator.cli.connection import add_common_flags, credentials_of
from coordinator.cli.flags import seconds
from coordinator.cli.output import Output, show
from coordinator.observe.rows import column

TIMEOUT_S = 2.0
EVERY_S = 0.1
"""Interval of questions while `--wait` lasts."""


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
    command = commands.add_parser(
        "health",
        help="check whether nodes serve",
        description="Check whether nodes serve: exit status 0 if all of them do, else 1. With "
        "--wait it waits until they do, as a script does that has just started one.",
    )
    command.set_defaults(run=run)
    command.add_argument(
        "--timeout",
        type=seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help=f"time limit per node (default: {TIMEOUT_S:g})",
    )
    command.add_argument(
        "--wait",
        type=seconds,
        default=0.0,
        metavar="SECONDS",
        help="wait until all nodes serve, at most this long",
    )
    add_common_flags(command, HealthRow, can_watch=True)


def run(options: argparse.Namespace) -> int:
    """Print a row for each node; the exit status."""
    from coordinator.operator.health import SERVING, Health

    give_up_s = time.monotonic() + options.wait

    def health() -> Output:
        while True:
            with Health(options.bootstrap, credentials=credentials_of(options)) as nodes:
                statuses = nodes.statuses(options.timeout)
            if set(statuses.values()) == {SERVING} or time.monotonic() >= give_up_s:
                break
            time.sleep(EVERY_S)
        rows = [HealthRow(node=node, status=status) for node, status in statuses.items()]
        return Output(HealthRow, rows, has_failed=set(statuses.values()) != {SERVING})

    return show(options, health)
