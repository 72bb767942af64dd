"""`coordinator serve`: its flags, and the way from there to one node or several."""

from __future__ import annotations

import argparse
from typing import Any

from coordinator.cli.output import WRONG_USAGE, complain
from coordinator.cli.settings_flags import add_settings, sources_of


def add_parsers(commands: Any) -> None:  # Any: argparse does not name its type.
    """The command and a flag for every setting."""
    command = commands.add_parser(
        "serve",
        help="run a node",
        description="Run a node until SIGTERM or Ctrl-C. Each setting is a flag, a variable of the "
        "environment or a line of the file of --config; the first of them that has it wins.",
    )
    command.set_defaults(run=_serve, is_server=True)
    command.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    command.add_argument("--embedded-by", type=int, default=0, help=argparse.SUPPRESS)
    command.add_argument("--embedded-nodes", type=int, default=1, help=argparse.SUPPRESS)
    add_settings(command)


def _serve(options: argparse.Namespace) -> int:
    from coordinator.cli.refusals import of_system
    from coordinator.cli.serve import serve
    from coordinator.cli.stopping import Parent
    from coordinator.cli.supervisor import supervise
    from coordinator.core.setting import InvalidSetting
    from coordinator.security.errors import CannotSecure
    from coordinator.security.loading import load as load_security
    from coordinator.security.tokens import new_token
    from coordinator.settings.sources import load

    try:
        settings, _ = load(sources_of(options))
        token = new_token() if options.embedded_by else ""
        security = load_security(settings.security, settings.serving, settings.kafka, token=token)
    except (InvalidSetting, CannotSecure) as error:
        complain(error)
        return WRONG_USAGE
    except OSError as error:
        complain(of_system(error))
        return WRONG_USAGE
    if settings.cluster.nodes > 1:
        return supervise(settings, options.arguments)
    parent = Parent() if options.supervised else None
    if options.embedded_by:
        parent = Parent(options.embedded_by, options.embedded_nodes)
    return serve(settings, security, parent)
