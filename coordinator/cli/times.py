"""Points in time and durations on the command line, in the forms of Kafka's tools."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import UTC, datetime

TIME_FORM = "YYYY-MM-DDTHH:MM:SS[.sss][Z|+HH:MM]"
DURATION_FORM = "PnDTnHnMnS"
_DURATION = re.compile(
    r"P(?:([0-9]{1,9})D)?(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?"
    r"(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)S)?)?"
)
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1_000)


def epoch_ms(text: str) -> int:
    """A point in time as epoch milliseconds; without a zone it is in UTC, as in Kafka's tool.

    Raises:
        ArgumentTypeError: it is not in the form.
    """
    try:
        point = datetime.fromisoformat(text)
        if point.tzinfo is None:
            point = point.replace(tzinfo=UTC)
        return round(point.timestamp() * 1_000)
    except (ValueError, OverflowError):
        raise ArgumentTypeError(f"{text!r} is no point in time: the form is {TIME_FORM}") from None


def duration_ms(text: str) -> int:
    """An ISO 8601 duration of days and less, as milliseconds.

    Raises:
        ArgumentTypeError: it is not in the form, or negative.
    """
    matched = _DURATION.fullmatch(text.upper())
    if matched is None or not any(matched.groups()):
        raise ArgumentTypeError(
            f"{text!r} is no duration: the form is {DURATION_FORM}, as in PT1H30M or P1D"
        )
    parts = zip(matched.groups(), _UNITS_MS, strict=True)
    return round(sum(float(number) * unit for number, unit in parts if number))
