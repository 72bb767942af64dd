"""Metadata of a member's setting: kind, default and meaning, in its field of a dataclass.

A setting is written down nowhere else. `poe settings` makes the typed keywords and the page of
member settings from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

GroupProtocol: TypeAlias = Literal["classic", "session"]


@dataclass(frozen=True, slots=True)
class SettingKind:
    """Kind of a value.

    take: returns a caller's value for the setting of a name, as the library uses it; raises
        TypeError or ValueError, whose message shows the right form.
    unit: empty if it measures nothing. allowed: bounds or choices in words; empty: any of its type.
    """

    take: Callable[[str, Any], Any]  # Any: a caller's value, then one of the setting's type.
    unit: str = ""
    allowed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSetting:
    """A setting. `default` may be told in words.

    typed: type of what callers write; empty: the field's.
    protocol: whose members have it; None: both. instead: what there is in the other one.
    in_workers: what a worker, which does not have it, has in its place; empty: it has it.
    """

    kind: SettingKind
    default: object
    meaning: str
    typed: str = ""
    protocol: GroupProtocol | None = None
    instead: str = ""
    in_workers: str = ""

    def take(self, name: str, value: Any) -> Any:  # Any: see `SettingKind.take`.
        """A caller's value as the library uses it; None where the type has it. Raises as `kind`."""
        if value is None and self.typed.endswith("| None"):
            return None
        return self.kind.take(name, value)


# Any: what `field` takes and returns.
def setting(default: Any, kind: SettingKind, meaning: str, **more: Any) -> Any:
    """Declare a setting. `more`: see `MemberSetting`; `default_text`: the default in words."""
    default_shown = more.pop("default_text", default)
    described = MemberSetting(kind=kind, default=default_shown, meaning=meaning, **more)
    return field(default=default, metadata={"setting": described})


def settings_of(config: type) -> dict[str, MemberSetting]:
    """The settings that a dataclass declares itself, by name; not those of its bases."""
    return {
        field.name: replace(setting_made, typed=setting_made.typed or str(field.type))
        for field in fields(config)
        if field.name in config.__annotations__ and (setting_made := field.metadata.get("setting"))
    }
