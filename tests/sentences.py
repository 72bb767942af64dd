"""The rules of how sentences and names read that a program can check.

A first line of a docstring names its subject: a noun phrase, or an imperative. A line that begins
with a relative word is a riddle until the reader has found what it refers to. `python -m
tests.sentences [PATH ...]` lists the offences in files and folders.
"""

import ast
import io
import itertools
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.tidy import GENERATED, Rule, Source

OPENINGS = """
    As At But By For From How If In None Nobody Of So Such That Those To What Whatever When Where
    Which Who Whoever Whose Why With
""".split()
"""Words that no first line begins with. The same with a hyphen are others: In-memory, As-is."""
COMMENT_OPENINGS = ["Of", "So many", "So much", "What", "Whatever", "Whoever", "Whose"]
"""Openings of a comment's first line."""
NAMES = """
    Beater Circle Duties Ears Revive Warm has_seat is_settled pending_joins pending_syncs sleepers
""".split()
"""Identifiers that have given way to the words an engineer would search for."""

_OPENING = re.compile(rf"(?:{'|'.join(OPENINGS)})(?=[\s,:;.])")
_COMMENT_OPENING = re.compile(rf"# (?:{'|'.join(COMMENT_OPENINGS)})\b")


def first_lines_name_their_subject(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node) or ""
        if found := _OPENING.match(text):
            line = node.body[0].lineno
            yield source.at(
                line, f"begins with {found[0]!r} instead of its subject: {_first(text)}"
            )


def strings_below_fields_name_their_subject(source: Source) -> Iterator[str]:
    """The meaning of a constant or a field is written in a string below it."""
    for node in ast.walk(source.tree):
        for name, text in ast.iter_fields(node):
            if name != "body" or not isinstance(text, list):
                continue
            for above, below in itertools.pairwise(text):
                if not isinstance(above, ast.Assign | ast.AnnAssign):
                    continue
                said = _string(below)
                if found := _OPENING.match(said):
                    what = f"begins with {found[0]!r} instead of its subject: {_first(said)}"
                    yield source.at(below.lineno, what)


def comments_name_their_subject(source: Source) -> Iterator[str]:
    previous = -1
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if line != previous + 1 and (found := _COMMENT_OPENING.match(token.string)):
            yield source.at(line, f"begins with {found[0][2:]!r} instead of its subject")
        previous = line


def names_are_those_of_the_field(source: Source) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.NAME and token.string in NAMES:
            yield source.at(token.start[0], f"{token.string} has a better name")


def _string(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        value = node.value.value
        return value if isinstance(value, str) else ""
    return ""


def _first(text: str) -> str:
    return text.partition("\n")[0][:60]


RULES: list[Rule] = [
    first_lines_name_their_subject,
    strings_below_fields_name_their_subject,
    comments_name_their_subject,
    names_are_those_of_the_field,
]


def main(paths: list[str]) -> int:
    """Print the offences in some files and folders, or in all; their number."""
    command = ["git", "ls-files", "--", *paths]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    files = [f for f in listed if f.endswith(".py") and not f.startswith(GENERATED)]
    sources = [Source(file, Path(file).read_text()) for file in files]
    offences = [offence for s in sources for rule in RULES for offence in rule(s)]
    print(*offences, sep="\n")
    return min(len(offences), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
