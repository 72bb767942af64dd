"""Ends of the records of a text: line breaks that are not in a quoted field.

A quote opens a field only where the field begins, as pyarrow and Spark read CSV: the quote in
`5" pipe` is an ordinary character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

BLOCK = 1 << 20
LONGEST = 64 << 20
"""Size of a record above which a quote is taken for one that is never closed."""
_CLOSE = re.compile(rb'(?:[^"]++|"")*+"')
_CLOSE_ESCAPED = re.compile(rb'(?:[^"\\]++|\\.|"")*+"', re.DOTALL)


class BadText(ValueError):
    """A text cannot be read as it is: quotes that are never closed, a header that is none."""


@dataclass(frozen=True, slots=True)
class Quotes:
    """Style of quotes. `escape`: see `FileFormat`. `separator`: one byte."""

    separator: bytes
    escape: str

    def ends_inside(self, line: bytes, inside: bool) -> bool:
        """True if a line ends in a quoted field. `inside`: it begins in one."""
        close = _CLOSE_ESCAPED if self.escape == "\\" else _CLOSE
        opening = self.separator + b'"'
        at = 0
        while True:
            if not inside:
                if not line.startswith(b'"', at):
                    at = line.find(opening, at) + 1
                    if not at:
                        return False
                at += 1
            closed = close.match(line, at)
            if closed is None:
                return True
            inside = False
            at = line.find(self.separator, closed.end()) + 1
            if not at:
                return False

    def check(self, text: bytes) -> None:
        """Refuse text whose quotes mean one thing in Spark's CSV and another in other CSV.

        Raises:
            BadText: it has a backslash in front of a quote.
        """
        if not self.escape and b'\\"' in text:
            raise BadText(
                'it has a backslash in front of a quote: set escape to "\\" if the backslash '
                'escapes the quote, as Spark writes CSV, or to "none" if quotes are doubled'
            )


class RecordEnds:
    """Counts records in a stream. `end`: where the last whole one ends.

    Args:
        begin: position in the text at which a record begins and the stream is.
        quotes: None: every line is a record.
    """

    def __init__(self, begin: int, quotes: Quotes | None) -> None:
        self.end = begin
        self._line = begin  # Where the current line begins.
        self._inside = False
        self._rest = b""
        self._quotes = quotes

    @property
    def unfinished(self) -> int:
        """Bytes behind the last whole record."""
        return self._line + len(self._rest) - self.end

    def feed(self, block: bytes) -> Iterator[int]:
        """The positions behind the records that the next block completes.

        Raises:
            BadText: see `Quotes.check`; or a record is too long to be one.
        """
        text = self._rest + block if self._rest else block
        quotes = self._quotes if self._inside or b'"' in text else None
        if quotes is not None:
            quotes.check(text)
        at = 0
        while (line_break := text.find(b"\n", at)) >= 0:
            if quotes is not None:
                self._inside = quotes.ends_inside(text[at : line_break + 1], self._inside)
            begin, at = at, line_break + 1
            self._line += at - begin
            if not self._inside:
                self.end = self._line
                yield self.end
        self._rest = text[at:]
        if self.unfinished > LONGEST:
            raise BadText(
                f"the record at byte {self.end} has no end within {LONGEST >> 20} MiB"
                + (": its quote is never closed" if self._inside else "")
            )

    def check_end(self) -> None:
        """Refuse a file that ends in a quoted field, if nothing can be added to it any more.

        Raises:
            BadText: it does.
        """
        inside = self._inside
        if self._quotes is not None and b'"' in self._rest:
            inside = self._quotes.ends_inside(self._rest, inside)
        if inside:
            raise BadText(f"the quote in the record at byte {self.end} is never closed")


def unescaped(quotes: Quotes) -> Callable[[bytes], bytes]:
    """Function that turns backslashes in quoted fields into RFC 4180's doubled quotes."""
    field = re.compile(
        rb"(^|[\n" + re.escape(quotes.separator) + rb'])"((?:[^"\\]++|\\.|"")*+)"', re.DOTALL
    )

    def plain(found: re.Match[bytes]) -> bytes:
        return found[1] + b'"' + _ESCAPED.sub(_plain, found[2]) + b'"'

    return lambda text: field.sub(plain, text)


_ESCAPED = re.compile(rb'\\(["\\])')


def _plain(found: re.Match[bytes]) -> bytes:
    return b'""' if found[1] == b'"' else b"\\"
