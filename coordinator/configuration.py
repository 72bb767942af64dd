"""Where settings come from: flags, then the environment, then a TOML file, then defaults.

A setting is a flag (`--group-max-size 100`), a variable (`COORDINATOR_GROUP_MAX_SIZE=100`) or a
line of the file (`group_max_size = 100`); the first of them counts.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from coordinator.dial import CLIENT_PREFIX
from coordinator.settings import InvalidSetting, Settings, check_bounds

ENVIRONMENT_PREFIX = "COORDINATOR_"


@dataclass(frozen=True, slots=True)
class Given:
    """A value and who gave it. Any: text, or what TOML makes of it."""

    name: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What may give values.

    Args:
        flags: by field name, as text.
        environment: the process's own; only names with the prefix are looked at.
        file: a TOML file, if one was given.
    """

    flags: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    file: Path | None = None

    def given(self) -> Iterator[Given]:
        """Everything that is given, what counts more later.

        Raises:
            InvalidSetting: the file is no TOML. OSError: it cannot be read.
        """
        if self.file is not None:
            try:
                table = tomllib.loads(self.file.read_text(encoding="utf-8"))
            except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
                raise InvalidSetting(f"{self.file}: {error}") from error
            for name, value in table.items():
                yield Given(name, value, str(self.file))
        for variable, text in self.environment.items():
            if variable.startswith(ENVIRONMENT_PREFIX) and not variable.startswith(CLIENT_PREFIX):
                name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
                yield Given(name, text, variable)
        for name, text in self.flags.items():
            yield Given(name, text, "--" + name.replace("_", "-"))


def load(sources: Sources) -> tuple[Settings, dict[str, str]]:
    """The settings in force, and where each value comes from.

    Raises:
        InvalidSetting: a key is unknown, or a value is not of its type or bounds.
        OSError: the file cannot be read.
    """
    values: dict[str, Any] = {}
    origins = dict.fromkeys(TYPES, "default")
    for it in sources.given():
        name = _known(it.name)
        values[name] = _parse(name, it.value)
        origins[it.name] = it.origin
    return Settings(**values), origins


def problems(sources: Sources) -> list[str]:
    """Everything that is wrong with the settings, each with who gave it; empty if they will do.

    Raises:
        OSError: the file cannot be read.
    """
    found: list[str] = []
    values: dict[str, Any] = {}
    try:
        given = list(sources.given())
    except InvalidSetting as error:
        return [str(error)]
    for it in given:
        try:
            value = _parse(_known(it.name), it.value)
            check_bounds(it.name, value)
        except InvalidSetting as error:
            found.append(f"{it.origin}: {error}")
        else:
            values[it.name] = value
    if not found:
        try:
            Settings(**values)
        except InvalidSetting as error:
            found.append(str(error))
    return found


TYPES: dict[str, type] = {field.name: type(field.default) for field in fields(Settings)}


def _known(name: str) -> str:
    if name in TYPES:
        return name
    close = difflib.get_close_matches(name, TYPES, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise InvalidSetting(f"there is no setting {name}{hint}")


def _parse(name: str, value: Any) -> Any:  # Any: text, or what TOML makes of it.
    kind = TYPES[name]
    if type(value) is kind:
        return value
    if isinstance(value, str):
        if kind is bool and value.lower() in ("true", "false", "1", "0", "yes", "no"):
            return value.lower() in ("true", "1", "yes")
        if kind is int:
            try:
                return int(value.replace("_", ""))
            except ValueError:
                pass
    raise InvalidSetting(f"{name} is {value!r}; it takes {kind.__name__}")
