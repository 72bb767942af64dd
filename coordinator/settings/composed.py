"""`Settings`: all sections of a node, and their fields by flat name."""

from __future__ import annotations

import difflib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from coordinator.core.config import GroupConfig
from coordinator.core.setting import InvalidSetting, Section, Setting, Value, settings_of
from coordinator.data_folder import SCHEME, path_of
from coordinator.settings.sections import (
    ClusterConfig,
    KafkaConfig,
    LimitsConfig,
    ObserveConfig,
    SecurityConfig,
    ServingConfig,
    StorageConfig,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a node. Each part is given its own section only."""

    groups: GroupConfig = field(default_factory=GroupConfig)
    serving: ServingConfig = field(default_factory=ServingConfig)
    kafka: KafkaConfig = field(default_factory=KafkaConfig)
    security: SecurityConfig = field(default_factory=SecurityConfig)
    storage: StorageConfig = field(default_factory=StorageConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    observe: ObserveConfig = field(default_factory=ObserveConfig)

    @classmethod
    def of(cls, **values: Value) -> Settings:
        """Settings from values by flat name; the others have their defaults.

        Raises:
            InvalidSetting: there is no such setting, or a value is not allowed.
        """
        store = values.get("store")
        if isinstance(store, str) and store.startswith(SCHEME):
            setting_named("store").check("store", store)
            if "data_dir" in values:
                raise InvalidSetting(f"store {store} names a folder: leave data_dir out")
            values = {**values, "store": "sqlite", "data_dir": path_of(store)}
        parts: dict[str, dict[str, Value]] = defaultdict(dict)
        for name, value in values.items():
            setting_named(name)
            parts[_SECTION_OF[name]][name] = value
        made: dict[str, Any] = {
            part: _SECTIONS[part](**settings) for part, settings in parts.items()
        }
        return cls(**made)

    def changed(self, **values: Value) -> Settings:
        """A copy with some values changed, by flat name.

        Raises:
            InvalidSetting: as `of`.
        """
        return self.of(**{**self.values(), **values})

    def values(self) -> dict[str, Value]:
        """Every value by its flat name."""
        return {name: getattr(getattr(self, part), name) for name, part in _SECTION_OF.items()}


_SECTIONS: dict[str, type[Section]] = get_type_hints(Settings)
_SECTION_OF = {name: part for part, kind in _SECTIONS.items() for name in settings_of(kind)}
SETTINGS: dict[str, Setting] = {
    name: setting for kind in _SECTIONS.values() for name, setting in settings_of(kind).items()
}
"""Every setting by its flat name."""


def sections_of_settings() -> dict[str, tuple[str, dict[str, Setting]]]:
    """The meaning and the settings of each section, by its name."""
    return {
        part: ((kind.__doc__ or "").partition("\n")[0], settings_of(kind))
        for part, kind in _SECTIONS.items()
    }


def setting_named(name: str) -> Setting:
    """A setting by its flat name.

    Raises:
        InvalidSetting: there is none; the message names the nearest.
    """
    if name in SETTINGS:
        return SETTINGS[name]
    close = difflib.get_close_matches(name, SETTINGS, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise InvalidSetting(f"there is no setting {name}{hint}")
