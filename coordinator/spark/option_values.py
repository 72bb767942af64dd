"""Parsing of option values from Spark's strings; a refusal says what is expected."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import overload

from coordinator.sources.location import nearest

EARLIEST, LATEST = "earliest", "latest"
_INT32_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1
_TRUTHS = {"true": True, "false": False}


@overload
def whole_number(given: Mapping[str, str], name: str, default: int, *, most: int = ...) -> int: ...
@overload
def whole_number(
    given: Mapping[str, str], name: str, default: None, *, most: int = ...
) -> int | None: ...
def whole_number(
    given: Mapping[str, str], name: str, default: int | None, *, most: int = _INT32_MAX
) -> int | None:
    """Parse an option that is a whole number from 1 on.

    Raises:
        ValueError: it is not.
    """
    text = given.get(name.lower())
    if text is None:
        return default
    if re.fullmatch(r"[0-9]{1,19}", text.strip()) is None or not 1 <= int(text) <= most:
        raise ValueError(f"{name}={text[:80]}: expected is a whole number from 1 to {most}")
    return int(text)


def truth(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Parse an option that is true or false.

    Raises:
        ValueError: it is neither.
    """
    text = given.get(name.lower())
    if text is None:
        return default
    try:
        return _TRUTHS[text.strip().lower()]
    except KeyError:
        raise ValueError(
            f"{name}={text[:80]}: expected is true or false{nearest(text[:80], _TRUTHS)}"
        ) from None


def starting_offsets(text: str) -> str | dict[int, int]:
    """Parse startingOffsets: earliest, latest, or offsets by partition.

    Raises:
        ValueError: it is none of them.
    """
    word = text.strip().lower()
    if word in (EARLIEST, LATEST):
        return word
    refusal = ValueError(
        f"startingOffsets={text[:80]}: expected is earliest, latest or a JSON object of offsets by "
        f'partition, such as {{"0": 120, "1": 0}}{nearest(text[:80], (EARLIEST, LATEST))}'
    )
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise refusal from None
    if not isinstance(values, dict) or not values:
        raise refusal
    for partition, offset in values.items():
        is_number = re.fullmatch(r"[0-9]{1,9}", partition) is not None
        if not is_number or type(offset) is not int or not 0 <= offset <= _OFFSET_MAX:
            raise refusal
    return {int(partition): offset for partition, offset in values.items()}
