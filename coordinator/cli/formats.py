"""Text of typed values: tables for people, JSON and YAML for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from coordinator.printable import printable

Plain = Any  # Values that JSON can hold.
_CODES = {"bold": "1", "red": "31", "green": "32", "yellow": "33"}
# Keys that YAML 1.1 reads as truth values or null.
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
_KEY = re.compile(r"[a-z][a-z0-9_]*")


def as_json(content: Plain, indent: int | None = None) -> str:
    """JSON in ASCII with DEL escaped, which `json` leaves as it is though it is invisible."""
    return json.dumps(content, indent=indent, allow_nan=False).replace("\x7f", "\\u007f")


def as_yaml(content: Plain) -> str:
    """YAML in block style, with every text quoted as JSON quotes it."""
    return "\n".join(_lines(content))


def _lines(content: Plain) -> list[str]:
    if isinstance(content, Mapping) and content:
        lines = []
        for key, value in content.items():
            lines += _under(f"{_key(key)}:", _lines(value), is_block=_is_block(value))
        return lines
    if isinstance(content, list) and content:
        return [line for value in content for line in _item(_lines(value))]
    return [_scalar(content)]


def _is_block(value: Plain) -> bool:
    return isinstance(value, Mapping | list) and bool(value)


def _under(head: str, lines: list[str], *, is_block: bool) -> list[str]:
    return [head, *(f"  {line}" for line in lines)] if is_block else [f"{head} {lines[0]}"]


def _item(lines: list[str]) -> list[str]:
    return [f"- {lines[0]}", *(f"  {line}" for line in lines[1:])]


def _key(key: str) -> str:
    return key if _KEY.fullmatch(key) and key not in _WORDS else quoted_text(key)


def _scalar(value: Plain) -> str:
    if isinstance(value, str):
        return quoted_text(value)
    text = as_json(value)
    # 1e+16 would be a text in YAML 1.1.
    return text.replace("e", ".0e") if isinstance(value, float) and "." not in text else text


def quoted_text(text: str) -> str:
    """A string of YAML and of TOML: that of JSON, but for characters beyond U+FFFF."""
    inner = "".join(f"\\U{ord(c):08x}" if ord(c) > 0xFFFF else as_json(c)[1:-1] for c in text)
    return f'"{inner}"'


def as_table(
    headings: Collection[str],
    cells: Sequence[Sequence[str]],
    tones: Mapping[int, Mapping[str, str]] | None = None,
) -> str:
    """A line of headings, then a line for each row, in columns of equal width.

    Args:
        cells: whatever clients sent may be in them; invisible characters are escaped.
        tones: colours by word for each coloured column's index; others are red. None: no colours.
    """
    shown = [[printable(text) for text in row] for row in cells]
    widths = [max(map(len, parts)) for parts in zip(headings, *shown, strict=True)]

    def line(row: Iterable[str]) -> str:
        return "  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True))

    if tones is None:
        return "\n".join(line(row).rstrip() for row in (headings, *shown))
    lines = [coloured(line(headings).rstrip(), "bold")]
    for row in shown:
        padded = [f"{text:{width}}" for text, width in zip(row, widths, strict=True)]
        for index, words in tones.items():
            padded[index] = coloured(padded[index], words.get(row[index], "red"))
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def coloured(text: str, tone: str) -> str:
    """The text between the escapes of a colour; as it is for the empty one."""
    return f"\x1b[{_CODES[tone]}m{text}\x1b[0m" if tone else text
