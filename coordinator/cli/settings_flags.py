"""Flags for the settings of a node, made of their metadata, in the sections of `Settings`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator.core.setting import Setting
from coordinator.settings.composed import sections_of_settings

if TYPE_CHECKING:
    from coordinator.settings.sources import Sources

PREFIX = "COORDINATOR_"
_METAVARS = {"file": "FILE", "dir": "FOLDER", "listen": "HOST:PORT", "host": "HOST"}
"""Forms of texts, by the last word of the name."""


def add_settings(command: argparse.ArgumentParser) -> None:
    """Add a flag for every setting, and `--config` for a file of settings."""
    command.add_argument("--config", type=Path, metavar="FILE", help="TOML file of settings")
    for title, (meaning, settings) in sections_of_settings().items():
        group = command.add_argument_group(title, meaning)
        for name, setting in settings.items():
            is_switch = setting.default is False  # Its flag needs no value.
            flag = group.add_argument(
                "--" + name.replace("_", "-"),
                dest=f"setting_{name}",
                metavar=_metavar(name, setting),
                help=_help(name, setting),
                nargs="?" if is_switch else None,
                const="true" if is_switch else None,
            )
            if words := _words(setting):  # No `choices`: the setting itself refuses, in its words.
                flag.completer = lambda words=words, **_: words  # type: ignore[attr-defined]


def sources_of(options: argparse.Namespace) -> Sources:
    """The flags of this command, the environment, and the file if one was given."""
    from coordinator.settings.sources import Sources

    flags = {
        name.removeprefix("setting_"): value
        for name, value in vars(options).items()
        if name.startswith("setting_") and value is not None
    }
    return Sources(flags=flags, environment=os.environ, file=options.config)


def _help(name: str, setting: Setting) -> str:
    text = f"{setting.description().removesuffix(']')}; {PREFIX}{name.upper()}]"
    return text.replace("%", "%%")


def _metavar(name: str, setting: Setting) -> str:
    if words := _words(setting):
        return "{" + ",".join(words) + "}"
    if setting.bounds is not None:
        return setting.bounds.unit.upper().replace(" ", "-") or "N"
    return _METAVARS.get(name.rpartition("_")[2], "TEXT")


def _words(setting: Setting) -> tuple[str, ...]:
    return ("true", "false") if isinstance(setting.default, bool) else setting.choices
