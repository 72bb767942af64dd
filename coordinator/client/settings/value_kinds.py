"""Kinds of settings: how the value of each is checked, and in which words its bounds are told."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection
from typing import get_args

from coordinator.assignors import BUILT_IN
from coordinator.client.settings.setting import GroupProtocol, SettingKind
from coordinator.client.validation import MOST, milliseconds_of, name_of, names_of, whole_of

MAX_CAPACITY = 1_000_000.0
LEASES = {"fast": 3_000, "standard": 10_000, "patient": 45_000}
"""Leases by name, milliseconds."""


def whole(unit: str = "", least: int = 0, most: int = MOST) -> SettingKind:
    return SettingKind(
        lambda name, value: whole_of(name, value, least, most), unit, f"at least {least}"
    )


def choice(*words: str) -> SettingKind:
    """One of a few words."""

    def take(name: str, value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"{name} is {value!r}; it is one of {', '.join(map(repr, words))}")
        return value

    return SettingKind(take, allowed=f"one of {', '.join(words)}")


def nearest(name: str, known: Collection[str]) -> str:
    """Suggestion of a similar name; of all names if none is similar."""
    near = difflib.get_close_matches(str(name), known, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def unknown_setting(who: str, name: str, known: Collection[str]) -> TypeError:
    """Error of a setting that there is not; it names the nearest one."""
    return TypeError(f"{who} has no setting {name!r}; {nearest(name, known)}")


def _assignor(name: str, value: object) -> str:
    assignor = name_of(name, value)
    if assignor not in BUILT_IN:
        raise ValueError(f"no assignor is called {assignor!r}; {nearest(assignor, BUILT_IN)}")
    return assignor


def _assignors(name: str, value: object) -> tuple[str, ...]:
    return tuple(_assignor(name, assignor) for assignor in names_of(name, value))


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; write True or False")
    return value


def _function(name: str, value: object) -> object:
    if not callable(value):
        raise TypeError(f"{name} is {value!r}; it is a function")
    return value


def _seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise TypeError(f"{name} is {value!r}; write seconds, 5.0")
    return value


def _lease(name: str, value: object) -> int:
    return LEASES[LEASE_NAME.take(name, value)] if isinstance(value, str) else whole_of(name, value)


def _capacity(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}; write {name}=1.0")
    if not math.isfinite(value) or not 0 <= value <= MAX_CAPACITY:
        raise ValueError(f"{name} is {value!r}; it is a number from 0 to {MAX_CAPACITY:g}")
    return float(value)


TEXT = SettingKind(name_of)
FLAG = SettingKind(_flag)
FUNCTION = SettingKind(_function)
MILLISECONDS = SettingKind(milliseconds_of, "ms", "at least 1")
SECONDS = SettingKind(_seconds, "s", "above 0")
MILLISECONDS_OR_0 = whole("ms")
PARTITIONS = whole("partitions")
ASSIGNORS = SettingKind(_assignors, allowed=f"of {', '.join(BUILT_IN)}")
ASSIGNOR = SettingKind(_assignor, allowed=f"one of {', '.join(BUILT_IN)}")
LEASE_NAME = choice(*LEASES)
LEASE = SettingKind(_lease, "ms", "one of fast, standard, patient, or 2,000 to 300,000")
CAPACITY = SettingKind(_capacity, allowed=f"0 to {MAX_CAPACITY:,.0f}")
PROTOCOL = choice(*get_args(GroupProtocol))
