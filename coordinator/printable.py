"""Escaping of text from clients for terminals, pictures, pages and logs.

Ids, topics, hosts, reasons and error messages are whatever a client has sent. A character that is
invisible, or that controls a terminal or the direction of text, is escaped as in Python and JSON:
`\\x1b`, `\\n`, `\\u202e`. Long text is cut in the middle, where ids differ least. Escaping is
idempotent, so a sentence may contain ids that are escaped already.

Output for programs (`-o json`, `-o yaml`) has the text itself, escaped by the rules of its format.
"""

from __future__ import annotations

import re

LENGTH_MAX = 300
"""Default limit: longer than a member id, which is a client id of up to 255 plus 37 characters."""
TAIL_SHARE = 6
"""Cut text keeps 1/TAIL_SHARE of its length from the end, where member ids differ."""
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Letters and marks in Unicode, but invisible: fillers and variation selectors.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def printable(text: str, length_max: int | None = LENGTH_MAX) -> str:
    """The text on one line, with invisible and control characters escaped.

    Args:
        length_max: longest result in characters; None: no limit.
    """
    if length_max is not None and len(text) > length_max:
        text = _cut(text, length_max)  # First, so that a megabyte is not scanned.
    if text.isprintable() and _UNSEEN.search(text) is None:
        return text
    shown = "".join(map(_shown, text))
    if length_max is None or len(shown) <= length_max:
        return shown
    return _cut(shown, length_max)


def printable_lines(text: str) -> str:
    """Like `printable` without a limit, but keeps line breaks."""
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


WITH_UUID = re.compile(r"(?:(?P<name>.*)-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.DOTALL)


def short_id(text: str) -> str:
    """A member id without most of its UUID: w-a …3f2c; any other text as it is."""
    match = WITH_UUID.fullmatch(text)
    return f"{match['name'] or ''} …{text[-4:]}".lstrip() if match else text
