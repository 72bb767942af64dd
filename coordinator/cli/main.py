"""The `coordinator` command: its subcommands and their flags.

Exit status: 0 done; 1 it failed; 2 the command line or a setting is wrong.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
from collections.abc import Sequence

from coordinator import __version__
from coordinator.cli.cluster import add_parsers as add_cluster_parsers
from coordinator.cli.config import USAGE_ERROR, add_settings, sources_of
from coordinator.cli.config import add_parser as add_config_parser
from coordinator.cli.groups import add_parsers as add_group_parsers
from coordinator.cli.health import add_parser as add_health_parser
from coordinator.cli.log import add_parsers as add_log_parsers
from coordinator.cli.output import FAILED, complain
from coordinator.cli.replay import add_parser as add_replay_parser
from coordinator.cli.token import add_parser as add_token_parser
from coordinator.cli.why import add_parsers as add_why_parsers
from coordinator.settings import InvalidSetting
from coordinator.settings.sources import load


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status. A closed pipe (`| head`) ends it without an error."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    status = 0
    try:
        try:
            status = _run(given)
        except ImportError as error:
            if error.name != "timer":
                raise
            complain(error)  # A file of the user's is in the way.
            status = FAILED
        finally:
            sys.stdout.flush()  # `--help` ends by SystemExit.
    except BrokenPipeError:
        if not _stdout_is_closed():
            raise
    return status


def _run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    options.arguments = arguments
    status: int = options.run(options)
    return status


def _stdout_is_closed() -> bool:
    """True if nobody reads standard output any more; the rest of its buffer is discarded."""
    stdout = sys.stdout.fileno()
    poll = select.poll()
    poll.register(stdout, select.POLLOUT)
    if not any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
        return False
    # Python flushes standard output once more at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
    return True


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
    groups = commands.add_parser("groups", help="inspect and change groups")
    add_group_parsers(groups)
    add_health_parser(commands)
    add_why_parsers(commands)
    add_replay_parser(commands)
    cluster = commands.add_parser("cluster", help="inspect nodes, and move shards between them")
    add_cluster_parsers(cluster)
    add_token_parser(commands)
    log = commands.add_parser("log", help="dump, verify or back up a data folder")
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
