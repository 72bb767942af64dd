"""Settings as dataclass fields: default, unit, bounds and meaning are in the field's metadata.

This is the only place where they are written down. Checks, the command line's help, the page of
settings and the chart's schema are all made from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

INT32_MAX = 2**31 - 1
Value: TypeAlias = int | str | bool


class InvalidSetting(ValueError):
    """A setting that does not exist, or a value it cannot have. The message says which."""


@dataclass(frozen=True, slots=True)
class SettingBounds:
    """Lowest and highest value of a number. `unit` is empty if it measures nothing (a port)."""

    low: int
    high: int = INT32_MAX
    unit: str = ""

    def __str__(self) -> str:
        least = f"at least {self.low:,}"
        return least if self.high == INT32_MAX else f"{self.low:,} to {self.high:,}"


_FORMS: dict[type, str] = {int: "a whole number", str: "text", bool: "true or false"}

Form: TypeAlias = Callable[[str], object]
"""Parser of a text; raises ValueError with the expected form."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The metadata of one setting. `allowed`: bounds, choices or a form; None: all of its type."""

    default: Value
    allowed: SettingBounds | tuple[str, ...] | Form | None
    meaning: str

    @property
    def bounds(self) -> SettingBounds | None:
        """The bounds of a number; None for anything else."""
        return self.allowed if isinstance(self.allowed, SettingBounds) else None

    @property
    def choices(self) -> tuple[str, ...]:
        """The permitted texts of a choice; empty for anything else."""
        return self.allowed if isinstance(self.allowed, tuple) else ()

    def check(self, name: str, value: Any) -> None:  # Any: the user's value.
        """Refuse a value of another type, out of bounds, or in another form.

        Raises:
            InvalidSetting: with the name, the value, and what it may be.
        """
        kind, allowed = type(self.default), self.allowed
        if type(value) is not kind:  # Not `isinstance`: True is no number.
            raise InvalidSetting(f"{name} is {value!r}; it takes {_FORMS[kind]}")
        if isinstance(allowed, SettingBounds):
            if not allowed.low <= value <= allowed.high:  # type: ignore[operator]
                raise InvalidSetting(
                    f"{name} is {value}; it may be {allowed.low} to {allowed.high}"
                )
        elif isinstance(allowed, tuple):
            if value not in allowed:
                raise InvalidSetting(f"{name} is {value!r}; it may be {', '.join(allowed)}")
        elif allowed is not None:
            try:
                allowed(value)  # type: ignore[arg-type]
            except ValueError as error:
                raise InvalidSetting(f"{name} is {value!r}; {error}") from None

    def description(self) -> str:
        """Return meaning, unit, bounds or choices, and default in one line."""
        shown = str(self.default).lower() if isinstance(self.default, bool) else self.default
        facts = [f"default: {'empty' if shown == '' else shown}"]
        if self.bounds is not None:
            unit = [f"unit: {self.bounds.unit}"] if self.bounds.unit else []
            facts = [*unit, str(self.bounds), *facts]
        if self.choices:
            facts.insert(0, f"one of {', '.join(self.choices)}")
        return f"{self.meaning} [{'; '.join(facts)}]"


def setting(
    default: Value, allowed: SettingBounds | tuple[str, ...] | Form | None, meaning: str
) -> Any:  # Any: what `field` returns.
    """Declare a field of a `Section`."""
    return field(default=default, metadata={"setting": Setting(default, allowed, meaning)})


class Section:
    """Base of dataclasses whose fields are settings: every value is checked when one is made."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for name, setting in settings_of(type(self)).items():
            setting.check(name, getattr(self, name))


def settings_of(section: type[Section]) -> dict[str, Setting]:
    return {field.name: field.metadata["setting"] for field in fields(section)}  # type: ignore[arg-type]
