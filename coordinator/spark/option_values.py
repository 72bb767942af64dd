"""Parsing of option values from Spark's strings; a refusal says what is expected."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import overload

from coordinator.sources.location import nearest

TRUTHS = {"true": True, "false": False}
EARLIEST, LATEST = "earliest", "latest"
_INT32_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1


@overload
def whole_number(
    options: Mapping[str, str], name: str, default: int, *, most: int = ...
) -> int: ...
@overload
def whole_number(
    options: Mapping[str, str], name: str, default: None, *, most: int = ...
) -> int | None: ...
def whole_number(
    options: Mapping[str, str], name: str, default: int | None, *, most: int = _INT32_MAX
) -> int | None:
    """Parse an option that is a whole number from 1 on.

    Raises:
        ValueError: it is not.
    """
    text = options.get(name.lower())
    if text is None:
        return default
    if re.fullmatch(r"[0-9]{1,19}", text.strip()) is None or not 1 <= int(text) <= most:
        raise ValueError(f"{name}={text[:80]}: expected is a whole number from 1 to {most}")
    return int(text)


def truth(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Parse an option that is true or false.

    Raises:
        ValueError: it is neither.
    """
    text = options.get(name.lower())
    if text is None:
        return default
    try:
        return TRUTHS[text.strip().lower()]
    except KeyError:
        raise ValueError(
            f"{name}={text[:80]}: expected is true or false{nearest(text[:80], TRUTHS)}"
        ) from None


def offsets_of_option(
    text: str, name: str, words: tuple[str, ...], topics: tuple[str, ...]
) -> str | dict[int, int]:
    """Parse startingOffsets or endingOffsets: a word, or offsets by partition.

    They are `{"0": 120}`; or in Kafka's form, with the topic around them, where -2 is the earliest
    and -1 the latest: `{"flights": {"0": 120, "1": -2}}`.

    Args:
        words: those that may stand for offsets. topics: names of the query's topic.
    Raises:
        ValueError: it is none of them.
    """
    word = text.strip().lower()
    if word in words:
        return word
    example = 'such as {"0": 120, "1": 0}'
    refusal = ValueError(
        f"{name}={text[:80]}: expected is {', '.join(words)} or a JSON object of offsets by "
        f"partition, {example}{nearest(text[:80], words)}"
    )
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise refusal from None
    if not isinstance(values, dict) or not values:
        raise refusal
    least = 0
    if any(isinstance(value, dict) for value in values.values()):
        others = sorted(values.keys() - set(topics))
        if others or len(values) > 1:
            raise ValueError(
                f"{name} names the topic {(others or sorted(values))[0]}, and the query reads "
                f"{topics[0]} alone; without a topic it is a JSON object of offsets by partition, "
                f"{example}"
            )
        values, least = next(iter(values.values())), -2
    for partition, offset in values.items():
        is_number = re.fullmatch(r"[0-9]{1,9}", partition) is not None
        if not is_number or type(offset) is not int or not least <= offset <= _OFFSET_MAX:
            raise refusal
    return {int(partition): offset for partition, offset in values.items()}
