"""`coordinator config`: show the effective settings and their sources, or check them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from coordinator.cli.flags import WrongUsage, add_output_flag
from coordinator.cli.formats import as_json
from coordinator.cli.output import WRONG_USAGE, Output, show
from coordinator.cli.settings_flags import add_settings, sources_of
from coordinator.observe.rows import column

if TYPE_CHECKING:
    from coordinator.settings import Settings
    from coordinator.settings.sources import Sources

FAST_STORE_SESSION_MS = 500
"""A fail-over takes 0.6 s with it. Members work on for 1.8 s at least with a lease of 3 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """A setting that is in force."""

    setting: str = column("Name of the setting.")
    value: int | str | bool = column("Its value.", text=as_json)
    source: str = column("`default`, a flag, a variable of the environment, or the file.")
    default: int | str | bool = column("Its default.", None)
    unit: str | None = column("Unit of a number; null: it has none.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemRow:
    """A finding about the settings."""

    level: Literal["error", "warning", "note"] = column(
        "An error keeps a node from starting; a note concerns some groups only."
    )
    message: str = column("The finding, with its source.")


def add_parsers(commands: Any) -> None:  # Any: argparse's own has no public type.
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
    add_output_flag(command, SettingRow, ProblemRow)
    add_settings(command)


def run(options: argparse.Namespace) -> int:
    """Show or check; the exit status is 2 if a setting is not valid."""
    action = _check if options.action == "check" else _show
    return show(options, lambda: action(sources_of(options))) and WRONG_USAGE


def _show(sources: Sources) -> Output:
    from coordinator.settings import SETTINGS, InvalidSetting
    from coordinator.settings.sources import load

    try:
        settings, origins = load(sources)
    except InvalidSetting as error:
        raise WrongUsage(str(error)) from error
    rows = []
    shown = {**settings.values(), "store": settings.storage.shown_store}
    for name, value in shown.items():
        description = SETTINGS[name]
        unit = description.bounds.unit if description.bounds is not None else ""
        rows.append(
            SettingRow(
                setting=name,
                value=value,
                source=origins[name],
                default=description.default,
                unit=unit or None,
            )
        )
    return Output(SettingRow, rows)


def _check(sources: Sources) -> Output:
    from coordinator.security.errors import CannotSecure
    from coordinator.security.loading import load as load_security
    from coordinator.settings.sources import load, problems

    errors = problems(sources)
    warnings: list[str] = []
    remarks: list[str] = []
    summary = ""
    if not errors:
        settings, origins = load(sources)
        warnings, remarks = _warnings(settings), _remarks(settings)
        _check_database(settings, warnings, remarks)
        set_count = sum(origin != "default" for origin in origins.values())
        summary = (
            f"{set_count} settings are given, {len(origins) - set_count} have their defaults: "
        )
        try:
            load_security(settings.security, settings.serving, settings.kafka)
        except CannotSecure as error:
            errors = [str(error)]
    rows = [
        *(ProblemRow(level="error", message=message) for message in errors),
        *(ProblemRow(level="warning", message=message) for message in warnings),
        *(ProblemRow(level="note", message=message) for message in remarks),
    ]
    if errors:
        lines = [f"coordinator: {error}" for error in errors]
        return Output(ProblemRow, rows, text="", notes=lines, has_failed=True)
    lines = [
        f"{summary}all are valid",
        *(f"warning: {warning}" for warning in warnings),
        *(f"note: {remark}" for remark in remarks),
    ]
    return Output(ProblemRow, rows, text="\n".join(lines))


def _warnings(settings: Settings) -> list[str]:
    """Settings that are allowed but risky in production."""
    warnings = []
    if settings.security.insecure:
        warnings.append("insecure is on: everybody on the network can read and change the groups")
    if settings.storage.store == "memory":
        warnings.append("store is memory: groups are lost when the process ends")
    if settings.storage.shared_store is not None and settings.cluster.replicas == 1:
        warnings.append("replicas is 1: without a standby, a fail-over has to load the shard")
    if settings.observe.record_dir:
        warnings.append("record_dir is set: every heartbeat is written to a file")
    return warnings


def _check_database(settings: Settings, warnings: list[str], remarks: list[str]) -> None:
    """Note how PostgreSQL replicates what nodes write there; or that it cannot be asked."""
    from coordinator.runtime.stores import postgres_store
    from coordinator.storage.log import CannotOpen, LogError

    shared = settings.storage.shared_store
    if shared is None or shared.kind != "postgresql":
        return
    try:
        server = postgres_store(settings.storage, shared).server
        from coordinator.storage.postgres_connection import replication_in_words

        try:
            connection = server.connect()
            remarks.append(f"{server.target}: {replication_in_words(connection)}")
            connection.close()
            if server.rivals:
                others = ", ".join(server.rivals)
                warnings.append(f"{others} can be written besides {server.host}: two primaries")
        finally:
            server.watchdog.close()
    except (CannotOpen, LogError) as error:
        warnings.append(f"the store cannot be asked: {error}")


def _remarks(settings: Settings) -> list[str]:
    """Settings that some groups want otherwise, if there are such groups."""
    from coordinator.core.values.policy import PROFILES

    lease_ms = PROFILES["fast"]
    session_ms = settings.storage.store_session_timeout_ms
    if (
        settings.storage.shared_store is None
        or session_ms <= FAST_STORE_SESSION_MS
        or settings.groups.group_min_lease_ms > lease_ms
    ):
        return []
    remark = (
        f"store_session_timeout_ms is {session_ms}: members of session groups whose policy asks "
        f"for a lease of {lease_ms // 1_000} s (profile fast) are suspended in a fail-over; "
        f"such groups want {FAST_STORE_SESSION_MS}"
    )
    return [remark]
