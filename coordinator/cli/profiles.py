"""Profiles of the command line: addresses and credentials of a cluster, under a name.

They are in `profiles.toml` in the folder of the XDG Base Directory Specification
(`$XDG_CONFIG_HOME/coordinator`, else `~/.config/coordinator`). A profile names files of
certificates and of a token, and holds no secret itself. A token's file that others can read is
refused, as `ssh` refuses such keys.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from coordinator.cli.flags import WrongUsage
from coordinator.cli.formats import as_json, quoted_text
from coordinator.typed_json import parse_dataclass

NONE = "none"
"""Name that stands for no profile."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Values for the flags of a connection; empty and False: not given."""

    bootstrap: str = ""
    tls: bool = False
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    token_file: str = ""
    insecure: bool = False
    proxy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """All profiles by name, and the name of the one in use; empty: none."""

    current: str = ""
    profiles: Mapping[str, Profile] = field(default_factory=dict)

    def named(self, name: str) -> Profile:
        """A profile.

        Raises:
            LookupError: there is none; the message says which there are.
        """
        if name not in self.profiles:
            from coordinator.cli.refusals import not_there

            raise LookupError(not_there("profile", name, sorted(self.profiles)))
        return self.profiles[name]


def file_of_profiles() -> Path:
    """The file, which need not exist.

    Raises:
        RuntimeError: the user has no home folder.
    """
    told = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(told) if told.startswith("/") else Path.home() / ".config"
    return folder / "coordinator" / "profiles.toml"


def read() -> Profiles:
    """All profiles; none if there is no file.

    Raises:
        OSError: the file cannot be read.
        WrongUsage: it is not what this module writes.
    """
    try:
        path = file_of_profiles()
    except RuntimeError:
        return Profiles()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        tables = _table(content, "profiles")
        stored = {name: parse_dataclass(Profile, _table(tables, name)) for name in tables}
        return Profiles(current=str(content.get("current", "")), profiles=stored)
    except FileNotFoundError:
        return Profiles()
    except UnicodeDecodeError as error:
        raise WrongUsage(f"{path} is damaged: it is not text in UTF-8") from error
    except ValueError as error:
        raise WrongUsage(f"{path} is damaged: {error}") from error


def write(profiles: Profiles) -> None:
    """Replace the file, readable by its owner alone.

    Raises:
        OSError: it cannot be written.
        WrongUsage: the user has no home folder.
        UnicodeEncodeError: a value is not text in UTF-8, and the file could not be read again.
    """
    try:
        path = file_of_profiles()
    except RuntimeError as error:
        raise WrongUsage("you have no home folder: set XDG_CONFIG_HOME") from error
    lines = [f"current = {_toml(profiles.current)}"]
    for name, profile in sorted(profiles.profiles.items()):
        lines += ["", f"[profiles.{name}]"]
        lines += [f"{key} = {_toml(value)}" for key, value in asdict(profile).items() if value]
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A temporary file has mode 0600.
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write("\n".join(lines) + "\n")
    os.replace(file.name, path)


def _table(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, Mapping):
        raise ValueError(f"{name} is no table")
    return table


def _toml(value: str | bool) -> str:
    if isinstance(value, bool):
        return as_json(value)
    value.encode()
    return quoted_text(value)


def check_name(name: str) -> None:
    """Refuse what is no name of a profile.

    Raises:
        WrongUsage: the message says what a name is.
    """
    if name == NONE or not _NAME.fullmatch(name):
        raise WrongUsage(
            f"a profile cannot be called {name}: names have up to 64 letters, digits, - and _, "
            f"and {NONE} stands for no profile"
        )


def chosen(name: str | None) -> Profile:
    """The profile of a command: the one named, else the one in use, else an empty one.

    Raises:
        WrongUsage: there is no such profile, its token is readable by others, or the file is
            damaged.
        OSError: the file cannot be read though a profile was named.
    """
    if name == NONE:
        return Profile()
    try:
        profiles = read()
    except OSError:
        if name:
            raise
        return Profile()  # A container's user may not look into the home folder that it was given.
    name = name or profiles.current
    if not name:
        return Profile()
    try:
        profile = profiles.named(name)
    except LookupError as error:
        raise WrongUsage(str(error)) from error
    check_token_file(profile.token_file)
    return profile


def check_token_file(path: str) -> None:
    """Refuse a token that others than its owner can read.

    Raises:
        WrongUsage: with the remedy.
    """
    if path:
        with contextlib.suppress(OSError):  # The reader of the token says what is wrong.
            if os.stat(path).st_mode & 0o077:
                raise WrongUsage(f"others can read the token in {path}: chmod 600 {path}")
