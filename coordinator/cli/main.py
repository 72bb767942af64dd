"""The `coordinator` command: its subcommands and their flags.

Exit status: 0 done; 1 it failed; 2 the command line or a setting is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from coordinator import __version__
from coordinator.cli.cluster import add_parsers as add_cluster_parsers
from coordinator.cli.config import USAGE_ERROR, add_settings, sources_of
from coordinator.cli.config import add_parser as add_config_parser
from coordinator.cli.groups import add_parsers as add_group_parsers
from coordinator.cli.health import add_parser as add_health_parser
from coordinator.cli.log import add_parsers as add_log_parsers
from coordinator.cli.output import complain
from coordinator.cli.replay import add_parser as add_replay_parser
from coordinator.cli.token import add_parser as add_token_parser
from coordinator.cli.why import add_parsers as add_why_parsers
from coordinator.settings import InvalidSetting
from coordinator.settings.sources import load


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args(given)
    options.arguments = given
    status: int = options.run(options)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="coordinator", description="A consumer-group coordinator as a gRPC service."
    )
    parser.add_argument("--version", action="version", version=f"coordinator {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("serve", help="run a node", description="Run a node.")
    command.set_defaults(run=_serve)
    command.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    add_settings(command)
    add_config_parser(commands)
    groups = commands.add_parser("groups", help="look at groups", description="Look at groups.")
    add_group_parsers(groups)
    add_health_parser(commands)
    add_why_parsers(commands)
    add_replay_parser(commands)
    cluster = commands.add_parser(
        "cluster", help="look at nodes, and move shards", description="Look at nodes, move shards."
    )
    add_cluster_parsers(cluster)
    add_token_parser(commands)
    log = commands.add_parser(
        "log", help="look into a data folder", description="Look into a data folder."
    )
    add_log_parsers(log)
    return parser


def _serve(options: argparse.Namespace) -> int:
    from coordinator.cli.serve import serve
    from coordinator.cli.supervisor import supervise
    from coordinator.security.errors import CannotSecure
    from coordinator.security.loading import load as load_security

    try:
        settings, _ = load(sources_of(options))
        security = load_security(settings.security, settings.serving)
    except (InvalidSetting, CannotSecure, OSError) as error:
        complain(error)
        return USAGE_ERROR
    if settings.cluster.nodes > 1:
        return supervise(settings, options.arguments)
    return serve(settings, security, supervised=options.supervised)
