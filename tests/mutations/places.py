"""Places in the source: a function, a class or a module's top, by name.

    coordinator/core/classic/join.py::join_group      a function, its decorators and all inside
    coordinator/shard/shard.py::Shard.step            a method
    coordinator/core/classic/group.py::Group          a class, without its methods
    coordinator/core/classic/journal.py::module       a module, without its functions and classes

A text that is looked up in a place is found whatever else is in the file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

MODULE = "module"
Span = tuple[int, int]
"""Begin and end offset in the source."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)


class NoPlace(ValueError):
    """There is no such place, or the text is not in it once. The message says which."""


def changed(root: Path, place: str, old: str, new: str) -> tuple[Path, str]:
    """The file of a place, and its source with `old` replaced there.

    Raises:
        NoPlace: see there.
    """
    file, _, name = place.partition("::")
    path = root / file
    if not path.is_file():
        raise NoPlace(f"{place}: there is no such file")
    source = path.read_text()
    offset = offset_of(source, name, old, place)
    return path, source[:offset] + new + source[offset + len(old) :]


def offset_of(source: str, name: str, text: str, place: str) -> int:
    """Offset of a text that occurs once in a place."""
    own = spans(source, name)
    if not own:
        raise NoPlace(f"{place}: there is no such function or class")
    found = sum(source.count(text, *span) for span in own)
    if found != 1:
        raise NoPlace(f"{place}: the text is found {found} times and not once")
    return next(at for span in own if (at := source.find(text, *span)) >= 0)


def spans(source: str, name: str) -> list[Span]:
    """The parts of the source that a name stands for: several for a class or a module, or if a
    name is defined more than once. Empty: nothing has that name."""
    starts = _line_starts(source)
    tree = ast.parse(source)
    if name == MODULE:
        return _own(tree, 1, len(starts) - 1, starts)
    found: list[Span] = []
    for qualified, node in definitions(tree):
        if qualified == name:
            first, last = _first_line(node), node.end_lineno
            if isinstance(node, ast.ClassDef):
                found += _own(node, first, last, starts)
            else:
                found.append((starts[first - 1], starts[last]))
    return found


def names(source: str) -> list[str]:
    """Every name that is a place of the source; those that are inside of others come first."""
    found = [name for name, _ in definitions(ast.parse(source))]
    return [*reversed(found), MODULE]


def definitions(node: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.stmt]]:
    """Functions and classes, with their names as in `Class.method`; none inside of functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _DEFINITIONS):
            yield inside + child.name, child
            if isinstance(child, ast.ClassDef):
                yield from definitions(child, f"{inside}{child.name}.")
        elif isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from definitions(child, inside)


def _own(node: ast.AST, first: int, last: int, starts: list[int]) -> list[Span]:
    """Lines without those of the definitions inside."""
    found, line = [], first
    for _, inner in _outermost(node):
        found.append((starts[line - 1], starts[_first_line(inner) - 1]))
        line = inner.end_lineno + 1
    return [*found, (starts[line - 1], starts[last])]


def _outermost(node: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    return ((name, inner) for name, inner in definitions(node) if "." not in name)


def _first_line(node: ast.stmt) -> int:
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


def _line_starts(source: str) -> list[int]:
    """The offset of each line, and of the end."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts
