"""Partitions on the command line: `TOPIC`, or `TOPIC:0-3,7`.

The last colon separates the two, so a topic whose name has a colon is named with its partitions.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Collection, Iterable
from typing import NamedTuple

from coordinator.assignors import TopicPartition

FORM = "TOPIC[:0-3,7]"
PARTITION_MAX = 2**31 - 1
SELECTED_MAX = 100_000
_RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")


class Selection(NamedTuple):
    """Partitions of one topic; None: all that have a committed offset."""

    topic: str
    partitions: tuple[int, ...] | None


def selection(text: str) -> Selection:
    """Parse `TOPIC` or `TOPIC:0-3,7`.

    Raises:
        ArgumentTypeError: it has neither form; the message says what is wrong.
    """
    topic, colon, listed = text.rpartition(":")
    if not colon:
        topic = listed
    if not topic:
        raise ArgumentTypeError(f"{text!r} names no topic: the form is {FORM}")
    if not colon:
        return Selection(topic, None)
    numbers: dict[int, None] = {}
    for part in listed.split(","):
        first, last = _range(part, text)
        if len(numbers) + last - first >= SELECTED_MAX:
            raise ArgumentTypeError(f"{text!r} names more than {SELECTED_MAX:,} partitions")
        numbers |= dict.fromkeys(range(first, last + 1))
    return Selection(topic, tuple(numbers))


def _range(part: str, text: str) -> tuple[int, int]:
    matched = _RANGE.fullmatch(part)
    if matched is None:
        invalid = f"{part!r} in {text!r}" if part else f"nothing after a colon or comma in {text!r}"
        raise ArgumentTypeError(f"{invalid} is no partition and no range: the form is {FORM}")
    first, last = int(matched[1]), int(matched[2] or matched[1])
    if last > PARTITION_MAX:
        raise ArgumentTypeError(f"{part!r} in {text!r} is too large: partitions end at 2^31-1")
    if first > last:
        raise ArgumentTypeError(f"{part!r} in {text!r} runs backwards: write {last}-{first}")
    return first, last


def chosen(
    selections: Iterable[Selection], known: Collection[TopicPartition]
) -> list[TopicPartition]:
    """The selected partitions, sorted; without selections, all that are known.

    Raises:
        LookupError: no partition of a topic is known, and none is named.
    """
    selections = list(selections)
    if not selections:
        return sorted(known)
    meant: set[TopicPartition] = set()
    for topic, numbers in selections:
        if numbers is None:
            of_topic = {key for key in known if key.topic == topic}
            if not of_topic:
                topics = sorted({f"'{key.topic}'" for key in known})
                there = f"there are offsets of {', '.join(topics[:10])}" if topics else "none are"
                raise LookupError(
                    f"No offset of topic '{topic}' is committed ({there}): name its partitions, "
                    f"as in --topic '{topic}:0-3'."
                )
            meant |= of_topic
        else:
            meant |= {TopicPartition(topic, number) for number in numbers}
    return sorted(meant)
