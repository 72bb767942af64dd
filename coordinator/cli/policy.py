"""`coordinator policy`: the settings of session groups."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from coordinator.cli.connection import add_common_flags, credentials_of
from coordinator.cli.output import Output, show
from coordinator.cli.parser import add_actions
from coordinator.observe.rows import column

if TYPE_CHECKING:
    from coordinator.operator.admin import GroupAdmin
    from coordinator.operator.session_admin import GroupPolicy

DEFAULT = "default"
"""Value that gives a setting its default."""
_INT32 = 2**31
_WORDS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """A setting of a session group's policy."""

    group: str = column("Group id.")
    setting: str = column("Name of the setting.")
    value: int | str | bool | None = column(
        "Value in force; times are milliseconds; null: the setting of the node counts."
    )
    default: int | str | bool | None = column("Value that it has if nobody has chosen another.")


def add_parsers(commands: Any) -> None:  # Any: argparse does not name its type.
    """The actions and their flags."""
    text = "show and change the settings of session groups"
    actions = add_actions(commands.add_parser("policy", help=text, description=text))
    for name, text, action in (
        ("show", "show the settings of a session group", _show),
        ("set", "change settings; a lease counts for a member once it attaches again", _set),
    ):
        command = actions.add_parser(name, help=text, description=f"{text.capitalize()}.")
        command.set_defaults(run=run, action=action)
        add_common_flags(command, PolicyRow, can_watch=name == "show")
        command.add_argument("group", metavar="GROUP", help="group id")
        if name == "set":
            command.add_argument(
                "settings",
                nargs="+",
                type=_setting,
                metavar="KEY=VALUE",
                help="setting and value, such as lease_ms=3000, lease_ms=fast, mode=warm; "
                f"KEY={DEFAULT} gives it its default",
            )


def run(options: argparse.Namespace) -> int:
    """Run an action and print the settings; the exit status."""

    def act() -> Output:
        from coordinator.operator.admin import GroupAdmin

        with GroupAdmin(options.bootstrap, credentials=credentials_of(options)) as admin:
            action: Callable[[GroupAdmin, argparse.Namespace], Output] = options.action
            return action(admin, options)

    return show(options, act)


def _show(admin: GroupAdmin, options: argparse.Namespace) -> Output:
    described = admin.describe_session_group(options.group)
    notes = [] if described.policy_set else ["Nobody has chosen a policy: these are the defaults."]
    return _settings(options.group, described.policy, notes)


def _set(admin: GroupAdmin, options: argparse.Namespace) -> Output:
    from coordinator.operator.session_admin import GroupPolicy

    settings = dict(options.settings)
    changes = {key: value for key, value in settings.items() if value != DEFAULT}
    defaults = [key for key, value in settings.items() if value == DEFAULT]
    policy = admin.set_group_policy(options.group, GroupPolicy(**changes), defaults)
    notes = []
    if "lease_ms" in settings:
        notes.append("Members keep the lease that they were told until they attach again.")
    return _settings(options.group, policy, notes)


def _settings(group: str, policy: GroupPolicy, notes: list[str]) -> Output:
    from coordinator.cli.session_views import settings_of
    from coordinator.core.values.policy import Policy

    chosen = settings_of(policy)
    listed = [
        PolicyRow(group=group, setting=name, value=chosen.get(name), default=_plain(default))
        for name, default in Policy.defaults().items()
    ]
    return Output(PolicyRow, listed, notes=notes)


def _plain(default: object) -> int | str | bool | None:
    plain_value = default.value if isinstance(default, Enum) else default
    assert plain_value is None or isinstance(plain_value, int | str)
    return plain_value


# --- Values -------------------------------------------------------------------------------------


def _setting(text: str) -> tuple[str, int | str | bool]:
    """A setting and its value, as the wire takes it."""
    from coordinator.core.values.policy import PROFILES, Policy

    key, is_given, value = text.partition("=")
    defaults = Policy.defaults()
    if key not in defaults or not is_given:
        known = ", ".join(defaults)
        raise argparse.ArgumentTypeError(f"{text!r} is no setting: give KEY=VALUE, of {known}")
    default = defaults[key]
    word = value.lower()
    if word == DEFAULT:
        return key, DEFAULT
    if key == "lease_ms" and word in PROFILES:
        return key, PROFILES[word]
    if isinstance(default, bool):
        return key, _one_of(key, word, _WORDS)
    if isinstance(default, Enum):
        return key, _one_of(key, word, {option.value: option.name for option in type(default)})
    if not value.isascii() or not value.isdigit() or int(value) >= _INT32:
        others = f", or {', '.join(PROFILES)}" if key == "lease_ms" else ""
        raise argparse.ArgumentTypeError(
            f"{key} is a whole number below 2^31{others}, and not {value!r}"
        )
    return key, int(value)


def _one_of(key: str, word: str, values: dict[str, Any]) -> Any:  # Any: what the wire takes.
    if word not in values:
        raise argparse.ArgumentTypeError(f"{key} is one of {', '.join(values)}, and not {word!r}")
    return values[word]
