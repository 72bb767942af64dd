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
RELATIVE = "How Nobody Of What Whatever Which Who Whoever Whom Whose Where Why".split()
"""Words that no section of a page begins with. Prose may begin with If, When or In."""
NAMES = """
    Beater Circle Duties Ears Hosts Revive Room Turn Warm _turn has_seat is_settled
    pending_joins pending_syncs sleepers
""".split()
"""Identifiers that have given way to the words an engineer would search for."""
ARGUED = ("coordinator/decisions/", "CHANGELOG.md")
"""Pages with other rules: a decision's title is what was decided, a changelog names what was."""

_OPENING = re.compile(rf"(?:{'|'.join(OPENINGS)})(?=[\s,:;.])")
_HELP_OPENING = re.compile(_OPENING.pattern, re.IGNORECASE)
_RELATIVE_OPENING = re.compile(rf"(?:{'|'.join(RELATIVE)})\b")
_CODE_IN_TEXT = re.compile(r"`[^`\n]+`")
_NAME = re.compile(rf"\b(?:{'|'.join(NAMES)})\b")
_COMMENT_OPENING = re.compile(rf"# (?:{'|'.join(COMMENT_OPENINGS)})\b")


def first_lines_name_their_subject(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        line = node.body[0].lineno if node.body else 1
        yield from _checked(source, line, _OPENING, ast.get_docstring(node) or "")


def strings_below_fields_name_their_subject(source: Source) -> Iterator[str]:
    """The meaning of a constant or a field is written in a string below it."""
    for node in ast.walk(source.tree):
        for name, text in ast.iter_fields(node):
            if name != "body" or not isinstance(text, list):
                continue
            for above, below in itertools.pairwise(text):
                if isinstance(above, ast.Assign | ast.AnnAssign):
                    yield from _checked(source, below.lineno, _OPENING, _string(below))


def help_texts_name_their_subject(source: Source) -> Iterator[str]:
    """The help of a flag or a command, and the meaning of a setting or a metric."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        texts = [it.value for it in node.keywords if it.arg in ("help", "description")]
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        if called == "setting" or called.endswith(("Histogram", "Counter", "MetricFamily")):
            texts += node.args[1:3]
        for text in texts:
            yield from _checked(source, text.lineno, _HELP_OPENING, _string(text))


def comments_name_their_subject(source: Source) -> Iterator[str]:
    if not _COMMENT_OPENING.search(source.text):
        return
    previous = -1
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if line != previous + 1 and (found := _COMMENT_OPENING.match(token.string)):
            yield source.at(line, f"begins with {found[0][2:]!r} instead of its subject")
        previous = line


def names_are_those_of_the_field(source: Source) -> Iterator[str]:
    if not any(name in source.text for name in NAMES):
        return
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.NAME and token.string in NAMES:
            yield source.at(token.start[0], f"{token.string} has a better name")


def titles_name_their_subject(page: Source) -> Iterator[str]:
    """Titles of a page, its sections, and the first words below each."""
    is_code = is_first = False
    for line, text in enumerate(page.lines, start=1):
        is_code ^= text.startswith("```")
        if is_code or not text.strip():
            continue
        title = re.match(r"#+ +(?:[0-9.]+ +)?(.*)", text)
        said = title[1] if title else text
        opening = _OPENING if title else _RELATIVE_OPENING
        if title or is_first:
            yield from _checked(page, line, opening, said)
        is_first = title is not None


def pages_use_the_names_of_the_field(page: Source) -> Iterator[str]:
    """Identifiers stand in code: in a span, or in a block."""
    is_code = False
    for line, text in enumerate(page.lines, start=1):
        is_code ^= text.startswith("```")
        for span in [text] if is_code else _CODE_IN_TEXT.findall(text):
            for name in _NAME.findall(span):
                yield page.at(line, f"{name} has a better name")


def _checked(source: Source, line: int, opening: re.Pattern[str], said: str) -> Iterator[str]:
    if found := opening.match(said):
        first = said.partition("\n")[0][:60]
        yield source.at(line, f"begins with {found[0]!r} instead of its subject: {first}")


def _string(node: ast.AST) -> str:
    """Text of a string, as an expression or as a statement; empty for anything else."""
    value = node.value if isinstance(node, ast.Expr) else node
    said = value.value if isinstance(value, ast.Constant) else ""
    return said if isinstance(said, str) else ""


RULES: list[Rule] = [
    first_lines_name_their_subject,
    strings_below_fields_name_their_subject,
    help_texts_name_their_subject,
    comments_name_their_subject,
    names_are_those_of_the_field,
]
PAGE_RULES: list[Rule] = [titles_name_their_subject, pages_use_the_names_of_the_field]


def rules_for(path: str) -> list[Rule]:
    """The rules of a file; none if it is neither written by hand in Python nor a page."""
    if path.endswith(".py") and not path.startswith(GENERATED):
        return RULES
    return PAGE_RULES if path.endswith(".md") and not path.startswith(ARGUED) else []


def main(paths: list[str]) -> int:
    """Print the offences in some files and folders, or in all; their number."""
    command = ["git", "ls-files", "--", *paths]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    offences = [
        offence
        for file in listed
        for rule in rules_for(file)
        for offence in rule(Source(file, Path(file).read_text()))
    ]
    print(*offences, sep="\n")
    return min(len(offences), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
