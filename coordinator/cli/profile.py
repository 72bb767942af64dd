"""`coordinator profile`: addresses and credentials of clusters under names."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from coordinator.cli import profiles
from coordinator.cli.connection import add_connection_flags, check_addresses
from coordinator.cli.flags import add_output_flag
from coordinator.cli.output import Output, show
from coordinator.cli.parser import add_actions
from coordinator.cli.profiles import Profile
from coordinator.observe.rows import column

FILES = ("tls_ca", "tls_cert", "tls_key", "token_file")
EMPTY = "There is no profile: `coordinator profile set NAME --bootstrap HOST:PORT` makes one."


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRow:
    """A profile."""

    profile: str = column("Name of the profile.")
    is_current: bool = column("True for the profile in use.", "IN-USE")
    bootstrap: str | None = column("Addresses of nodes; null: not given.")
    tls: bool = column("True if TLS is used with the system's authorities.", None)
    tls_ca: str | None = column("File of certificate authorities; null: not given.")
    tls_cert: str | None = column("File of the client certificate; null: not given.", None)
    tls_key: str | None = column("File of its key; null: not given.", None)
    token_file: str | None = column("File of the bearer token; null: not given.")
    insecure: bool = column("True if the token is sent even without TLS.", None)
    proxy: str | None = column("HTTP proxy to go through; null: none.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedProfile:
    """A profile that was deleted."""

    profile: str = column("Name of the profile.")
    deleted: bool = column("True.")


def add_parsers(commands: Any) -> None:  # Any: argparse does not name its type.
    """The actions and their flags."""
    text = "keep addresses and credentials of clusters under names"
    actions = add_actions(commands.add_parser("profile", help=text, description=text))
    for name, text, action in (
        ("set", "make a profile, or change the values that are given", _set),
        ("list", "list all profiles", _list),
        ("use", "use a profile in commands that name none", _use),
        ("show", "show a profile", _show),
        ("delete", "delete a profile", _delete),
    ):
        command = actions.add_parser(name, help=text, description=text)
        command.set_defaults(run=_run, action=action)
        if name == "use":
            command.add_argument("name", help=f"profile; {profiles.NONE}: use none")
        elif name == "show":
            command.add_argument("name", nargs="?", help="profile (default: the one in use)")
        elif name != "list":
            command.add_argument("name", help="profile")
        add_output_flag(command, DeletedProfile if name == "delete" else ProfileRow)
        if name == "set":
            add_connection_flags(command, prefix="set_")


def _run(options: argparse.Namespace) -> int:
    return show(options, lambda: options.action(options))


def _set(options: argparse.Namespace) -> Output:
    profiles.check_name(options.name)
    known = profiles.read()
    given = {
        key: value
        for key in asdict(Profile())
        if (value := getattr(options, f"set_{key}")) is not None
    }
    for key in FILES:
        if given.get(key):
            given[key] = str(Path(given[key]).absolute())
    if given.get("bootstrap"):
        check_addresses(given["bootstrap"])
    profile = replace(known.profiles.get(options.name, Profile()), **given)
    profiles.check_token_file(profile.token_file)
    changed = replace(known, profiles={**known.profiles, options.name: profile})
    profiles.write(changed)
    is_used = changed.current == options.name
    hint = f"`coordinator profile use {options.name}` makes commands use it."
    return Output(ProfileRow, [_row(changed, options.name)], notes=[] if is_used else [hint])


def _list(options: argparse.Namespace) -> Output:
    known = profiles.read()
    return Output(ProfileRow, [_row(known, name) for name in sorted(known.profiles)], empty=EMPTY)


def _use(options: argparse.Namespace) -> Output:
    known = profiles.read()
    name = "" if options.name == profiles.NONE else options.name
    if name:
        known.named(name)
    changed = replace(known, current=name)
    profiles.write(changed)
    rows = [_row(changed, name)] if name else []
    return Output(ProfileRow, rows, empty="No profile is in use any more.")


def _show(options: argparse.Namespace) -> Output:
    known = profiles.read()
    name = options.name or known.current
    if not name:
        return Output(ProfileRow, [], empty="No profile is in use.")
    known.named(name)
    return Output(ProfileRow, [_row(known, name)])


def _delete(options: argparse.Namespace) -> Output:
    known = profiles.read()
    known.named(options.name)
    left = {name: profile for name, profile in known.profiles.items() if name != options.name}
    current = "" if known.current == options.name else known.current
    profiles.write(profiles.Profiles(current=current, profiles=left))
    return Output(DeletedProfile, [DeletedProfile(profile=options.name, deleted=True)])


def _row(known: profiles.Profiles, name: str) -> ProfileRow:
    profile = known.profiles[name]
    texts = {key: getattr(profile, key) or None for key in ("bootstrap", "proxy", *FILES)}
    return ProfileRow(
        profile=name,
        is_current=name == known.current,
        tls=profile.tls,
        insecure=profile.insecure,
        **texts,
    )
