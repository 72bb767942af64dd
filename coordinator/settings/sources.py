"""Sources of settings: flags, then the environment, then a TOML file, then defaults.

A setting is a flag (`--group-max-size 100`), a variable (`COORDINATOR_GROUP_MAX_SIZE=100`) or a
line of the file (`group_max_size = 100`); the first source that has it wins.
"""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coordinator.core.setting import InvalidSetting
from coordinator.environment import is_of_clients
from coordinator.settings.composed import SETTINGS, Settings, setting_named

ENVIRONMENT_PREFIX = "COORDINATOR_"


@dataclass(frozen=True, slots=True)
class Given:
    """A value and its source. Any: a text, or a TOML value."""

    name: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Flags, environment and file.

    Args:
        flags: texts by setting name.
        environment: environment of the process; only names with the prefix are read.
        file: a TOML file, if one was given.
    """

    flags: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    file: Path | None = None

    def given(self) -> Iterator[Given]:
        """Every given value, in ascending order of precedence.

        Raises:
            InvalidSetting: the file is not TOML.
            OSError: the file cannot be read.
        """
        if self.file is not None:
            try:
                table = tomllib.loads(self.file.read_text(encoding="utf-8"))
            except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
                raise InvalidSetting(f"{self.file}: {error}") from error
            for name, value in table.items():
                yield Given(name, value, str(self.file))
        for variable, text in self.environment.items():
            if variable.startswith(ENVIRONMENT_PREFIX) and not is_of_clients(variable):
                name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
                yield Given(name, text, variable)
        for name, text in self.flags.items():
            yield Given(name, text, "--" + name.replace("_", "-"))


def load(sources: Sources) -> tuple[Settings, dict[str, str]]:
    """The effective settings, and the origin of each value.

    Raises:
        InvalidSetting: the first of the `problems`.
        OSError: the file cannot be read.
    """
    values, origins, wrong = _read(sources)
    if wrong:
        raise InvalidSetting(wrong[0])
    return Settings.of(**values), origins


def problems(sources: Sources) -> list[str]:
    """All errors in the settings, each with its source; empty if they are valid.

    A value is checked even if one from another source overrides it.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        values, _, wrong = _read(sources)
        if not wrong:
            Settings.of(**values)
    except InvalidSetting as error:
        return [str(error)]
    return wrong


def _read(sources: Sources) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Values and origins by name, and the errors of single values."""
    values: dict[str, Any] = {}
    origins = dict.fromkeys(SETTINGS, "default")
    wrong = []
    for raw in sources.given():
        try:
            setting = setting_named(raw.name)
            value = _typed(raw.value, type(setting.default))
            setting.check(raw.name, value)
        except InvalidSetting as error:
            wrong.append(f"{raw.origin}: {error}")
        else:
            values[raw.name], origins[raw.name] = value, raw.origin
    return values, origins, wrong


def _typed(value: Any, kind: type) -> Any:  # Any: a text, or a TOML value.
    """A text parsed as `kind`; unchanged if it cannot be, or is no text."""
    if isinstance(value, str):
        if kind is bool and value.lower() in ("true", "false", "1", "0", "yes", "no"):
            return value.lower() in ("true", "1", "yes")
        if kind is int:
            with contextlib.suppress(ValueError):
                return int(value.replace("_", ""))
    return value
