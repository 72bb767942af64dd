"""`coordinator config`: show the effective settings and their sources, or check them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from coordinator.cli.output import complain
from coordinator.settings import SETTINGS, InvalidSetting, Settings
from coordinator.settings.sources import Sources, load, problems

USAGE_ERROR = 2


def add_parser(commands: Any) -> None:  # Any: argparse's own has no public type.
    """`coordinator config [show|check]`."""
    text = "show the effective settings and the source of each, or check them"
    command = commands.add_parser("config", help=text, description=text)
    command.add_argument(
        "action",
        nargs="?",
        choices=("show", "check"),
        default="show",
        help="show (default) or check; check also loads the certificates, tokens and rules",
    )
    command.set_defaults(run=run)
    add_settings(command)


def add_settings(command: argparse.ArgumentParser) -> None:
    """Add a flag for every setting, and `--config` for a file of settings."""
    command.add_argument("--config", type=Path, metavar="FILE", help="TOML file of settings")
    for name, setting in SETTINGS.items():
        is_switch = setting.default is False  # Its flag needs no value.
        command.add_argument(
            "--" + name.replace("_", "-"),
            dest=f"setting_{name}",
            metavar="VALUE",
            help=setting.description().replace("%", "%%"),
            nargs="?" if is_switch else None,
            const="true" if is_switch else None,
        )


def sources_of(options: argparse.Namespace) -> Sources:
    """The flags of this command, the environment, and the file if one was given."""
    flags = {
        name.removeprefix("setting_"): value
        for name, value in vars(options).items()
        if name.startswith("setting_") and value is not None
    }
    return Sources(flags=flags, environment=os.environ, file=options.config)


def run(options: argparse.Namespace) -> int:
    """Show or check; the exit status is 2 if a setting is not valid."""
    sources = sources_of(options)
    try:
        if options.action == "check":
            return _check(sources)
        settings, origins = load(sources)
    except (InvalidSetting, OSError) as error:
        complain(error)
        return USAGE_ERROR
    width = max(map(len, origins))
    for name, value in settings.values().items():
        print(f"{name:{width}}  {value!r:20}  {origins[name]}")
    return 0


def _check(sources: Sources) -> int:
    from coordinator.security.errors import CannotSecure
    from coordinator.security.loading import load as load_security

    if found := problems(sources):
        for problem in found:
            complain(problem)
        return USAGE_ERROR
    settings, origins = load(sources)
    try:
        load_security(settings.security, settings.serving)
    except CannotSecure as error:
        complain(error)
        return USAGE_ERROR
    given = sum(origin != "default" for origin in origins.values())
    print(f"{given} settings are given, {len(origins) - given} have their defaults: all are valid")
    for warning in _warnings(settings):
        print(f"warning: {warning}")
    return 0


def _warnings(settings: Settings) -> list[str]:
    """Settings that are allowed but risky in production."""
    found = []
    if settings.security.insecure:
        found.append("insecure is on: everybody on the network can read and change the groups")
    if settings.storage.store == "memory":
        found.append("store is memory: groups are lost when the process ends")
    if settings.storage.shared_store is not None and settings.cluster.replicas == 1:
        found.append("replicas is 1: without a standby, a fail-over has to load the shard")
    if settings.observe.record_dir:
        found.append("record_dir is set: every heartbeat is written to a file")
    return found
