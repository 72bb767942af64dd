"""Documents as tests read them: blocks of code, and commands with the output below them.

A program's name stands in its first line (`# worker.py`). In output that a page prints, `…` stands
for anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
ANYTHING = "…"
_BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"# ([\w./-]+\.\w+)\n")
_IN_BACKGROUND = re.compile(r"&(?: \w+=\$!)?$")
_REMARK = re.compile(r"\s{2,}# .*")
"""A remark behind a command; two blanks part it, as in this project's pages."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str

    @property
    def name(self) -> str:
        """The file that the block is to be saved as; empty: it names none."""
        match = _NAMED.match(self.text)
        return match[1] if match else ""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a `console` block, and the lines that the page prints below it."""

    text: str
    expected: tuple[str, ...] = ()

    @property
    def is_background(self) -> bool:
        return _IN_BACKGROUND.search(self.text) is not None


def blocks(page: Path, language: str = "") -> list[Block]:
    """The blocks of a page in order; of one language, if it is given."""
    found = [Block(*match.groups()) for match in _BLOCK.finditer(page.read_text())]
    return [block for block in found if language in ("", block.language)]


def commands(text: str) -> list[Command]:
    """The commands of a `console` block; a backslash at the end of a line continues one.

    Raises:
        ValueError: there is output before the first command.
    """
    found: list[Command] = []
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            found.append(Command(_REMARK.sub("", line).removeprefix("$ ").strip()))
        elif not found:
            raise ValueError(f"output before the first command: {line!r}")
        else:
            last = found.pop()
            found.append(Command(last.text, (*last.expected, line)))
    return found


def missing_lines(expected: Sequence[str], output: str, *, in_order: bool = True) -> list[str]:
    """Lines of a page that the output does not have.

    Args:
        in_order: the output has to have them in the page's order; all after the first that is not
            there count as missing. If it is False, a line may be a part of one that was printed:
            threads that print at the same time put their line breaks behind both.
    """
    printed = output.splitlines()
    if not in_order:
        return [
            line for line in expected if not any(_matches(line, row, re.search) for row in printed)
        ]
    left = iter(printed)
    for number, line in enumerate(expected):
        if not any(_matches(line, item) for item in left):
            return list(expected[number:])
    return []


def _matches(line: str, printed: str, match: Callable = re.fullmatch) -> bool:
    """Columns may have other widths: runs of blanks count as one."""
    pattern = ".*".join(map(re.escape, _with_single_blanks(line).split(ANYTHING)))
    return match(pattern, _with_single_blanks(printed)) is not None


def _with_single_blanks(line: str) -> str:
    return " ".join(line.split())
