"""Settings as callers write them, read: names and values are checked when a member is made."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from coordinator.client.member.calls import Level
from coordinator.client.settings.configs import ClassicConfig, MemberConfig, SessionConfig
from coordinator.client.settings.process import ProcessConfig, WorkerConfig
from coordinator.client.settings.setting import GroupProtocol, MemberSetting, settings_of
from coordinator.client.settings.value_kinds import PROTOCOL, unknown_setting
from coordinator.client.validation import name_of, topics_of
from coordinator.dial import Credentials
from coordinator.node_source import Bootstrap

if TYPE_CHECKING:
    from coordinator.client.settings.typed import MemberSettings, WorkerSettings

    Given = MemberSettings | WorkerSettings | Mapping[str, object]

SECTIONS: dict[type, dict[str, MemberSetting]] = {
    kind: settings_of(kind)
    for kind in (ClassicConfig, SessionConfig, MemberConfig, ProcessConfig, WorkerConfig)
}
SETTINGS = {name: setting for section in SECTIONS.values() for name, setting in section.items()}
"""Every setting by its name."""
OF_WORKERS = SECTIONS[WorkerConfig]


def config_of(
    protocol: GroupProtocol, group_id: object, topics: object, settings: Given
) -> ClassicConfig | SessionConfig:
    """The settings that the machine of a member uses.

    Raises:
        TypeError, ValueError: one is wrong; the message shows the right form.
    """
    check_names(protocol, settings)
    kind = SessionConfig if protocol == "session" else ClassicConfig
    read = {**_read(kind, settings), **_read(MemberConfig, settings)}
    read["client_id"] = read.get("client_id") or f"{socket.gethostname()}-{os.getpid()}"
    read |= {"group_id": name_of("group_id", group_id), "topics": topics_of(topics)}
    if kind is SessionConfig:
        read["incarnation"] = secrets.token_bytes(16)
        read["started_at_ms"] = time.time_ns() // 1_000_000
    return kind(**read)


def process_of(
    protocol: GroupProtocol, settings: Given, bootstrap: Bootstrap = ""
) -> ProcessConfig:
    """Settings of a member beside its machine; its credentials find the nodes of `bootstrap`.

    Raises as `config_of`.
    """
    read = _read(ProcessConfig, settings)
    read.setdefault("give_back", "released" if protocol == "session" else "poll")
    credentials = read.get("credentials") or Credentials.from_environment()
    return ProcessConfig(**{**read, "credentials": credentials.finding(bootstrap)})


def worker_config_of(settings: Given) -> WorkerConfig:
    """A worker's own settings. Raises as `config_of`."""
    return WorkerConfig(**_read(WorkerConfig, settings))


def implied_protocol(settings: Given) -> GroupProtocol | None:
    """The protocol whose members alone have one of the settings; None: they leave it open.

    Raises:
        TypeError: they have settings of both.
    """
    names = {
        setting.protocol: name
        for name in settings
        if (setting := SETTINGS.get(name)) and setting.protocol
    }
    if len(names) > 1:
        raise TypeError(
            f"{names['classic']} is a setting of classic members, and {names['session']} one of "
            "session members: leave one of them out"
        )
    return next(iter(names), None)


def _read(kind: type, settings: Given) -> dict[str, Any]:  # Any: each of its own type.
    values: Mapping[str, Any] = settings
    return {
        name: setting.take(name, values[name])
        for name, setting in SECTIONS[kind].items()
        if name in values
    }


def check_names(
    protocol: GroupProtocol | None, settings: Given, *, worker: Collection[str] | None = None
) -> None:
    """Check that members of a protocol, or workers, have settings of these names.

    Args:
        protocol: None: the settings are of both.
        worker: parameters of a worker itself, for suggestions; None: a member is meant.
    Raises:
        TypeError: one is unknown, is one of the other protocol, or has no meaning in a worker; the
            message says what to write.
    """
    foreign = set[str]()
    if protocol is not None:
        PROTOCOL.take("protocol", protocol)
        foreign = {"classic", "session"} - {protocol}
    who, others = ("a member", OF_WORKERS) if worker is None else ("a worker", {})
    its = {name: setting for name, setting in SETTINGS.items() if name not in others}
    for name, value in settings.items():
        if (found_setting := its.get(name)) is None:
            known = [kind for kind, section in its.items() if section.protocol not in foreign]
            if worker is not None:
                known = [kind for kind in known if not its[kind].in_workers]
                known = [
                    *(setting_name for setting_name in worker if setting_name != "settings"),
                    *known,
                ]
            raise unknown_setting(who, name, known)
        if worker is not None and found_setting.in_workers:
            if value is not None:
                raise TypeError(f"a worker has no setting {name!r}: {found_setting.in_workers}")
        elif found_setting.protocol in foreign:
            instead = f"; {found_setting.instead}" if found_setting.instead else ""
            raise TypeError(f"{name} is no setting of the {protocol} protocol{instead}")


def remarks(config: MemberConfig, settings: Collection[str]) -> list[tuple[Level, str]]:
    """Lines for the log of a member that starts with these settings."""
    lines: list[tuple[Level, str]] = []
    if not isinstance(config, ClassicConfig):
        return lines
    if "assignors" not in settings:
        default = (
            "the setting assignors is left out, so range is used; the next release takes "
            "cooperative-sticky instead, and range where the group demands it. To settle it now, "
            "say assignors=['cooperative-sticky'] or assignors=['range']"
        )
        lines.append((Level.INFO, default))
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        too_slow = (
            f"heartbeat_interval_ms is {config.heartbeat_interval_ms}, so the session of "
            f"{config.session_timeout_ms} ms ends between two heartbeats; usual is a third of "
            "session_timeout_ms at most"
        )
        lines.append((Level.WARNING, too_slow))
    return lines
