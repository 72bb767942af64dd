"""Text from outside, made fit to be looked at: on a terminal, in a picture, on a page, in a log.

Ids, topics, hosts, reasons and messages of errors are whatever a client has sent. A character
that is not seen, or that acts on a terminal or on the order of the text around it, is shown by its
number, as Python and JSON write it: `\\x1b`, `\\n`, `\\u202e`. What is long is cut in the middle,
where ids differ least. A text that was made printable stays as it is when that is done again, so
a sentence may hold ids that are printable already.

What programs read (`-o json`, `-o yaml`) has the text itself, by those formats' own rules.
"""

from __future__ import annotations

import re

LENGTH_MAX = 300
"""Longer than an id that a client library makes: 36 characters behind a client id of 255."""
TAIL_SHARE = 6
"""Of what is left of a long text, one part in so many is its end: member ids differ there."""
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Letters and marks to Unicode, and nothing to the eye: fillers and variation selectors.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def printable(text: str, length_max: int | None = LENGTH_MAX) -> str:
    """The text, or its likeness, on one line, in characters that are all seen.

    Args:
        length_max: of the result, in characters; None: as long as it is.
    """
    if length_max is not None and len(text) > length_max:
        text = _cut(text, length_max)  # First: a megabyte has not to be looked at.
    if text.isprintable() and _UNSEEN.search(text) is None:
        return text
    shown = "".join(map(_shown, text))
    if length_max is None or len(shown) <= length_max:
        return shown
    return _cut(shown, length_max)


def printable_lines(text: str) -> str:
    """As `printable`, of a text whose lines are meant, however long."""
    return "\n".join(printable(line, None) for line in text.split("\n"))


def _cut(text: str, length_max: int) -> str:
    tail = length_max // TAIL_SHARE
    return f"{text[: length_max - tail - 1]}…{text[len(text) - tail :]}"


def _shown(char: str) -> str:
    if char.isprintable() and not _UNSEEN.match(char):
        return char
    if char in _NAMED:
        return _NAMED[char]
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
