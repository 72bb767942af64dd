"""Mutations made by a program: small changes of Python code that some test should notice.

The operators are mutmut's for code that decides: comparisons, boolean operators, arithmetic,
numbers and truth values, returned values, conditions. Not changed, since no test has to notice:
annotations, assertions, the texts of messages, and what runs for type checkers alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: (r"is\b", "is not"),
    ast.IsNot: (r"is\s+not\b", "is"),
    ast.In: (r"in\b", "not in"),
    ast.NotIn: (r"not\s+in\b", "in"),
}
_ARITHMETIC = {
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: (r"\*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "//"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: (r"\|", "&"),
}
_BOOLEAN = {ast.And: (r"and\b", "or"), ast.Or: (r"or\b", "and")}
Node = ast.expr | ast.stmt


@dataclass(frozen=True, slots=True)
class Edit:
    """`new` takes the place of the source between two offsets."""

    operator: str
    begin: int
    end: int
    new: str

    def of(self, source: str) -> str:
        """The source after the edit."""
        return source[: self.begin] + self.new + source[self.end :]


def edits(source: str) -> Iterator[Edit]:
    """All edits of a source, outer nodes before those inside."""
    offsets = _Offsets(source)
    for node in _changeable(ast.parse(source)):
        for change in _changes(node, source, offsets):
            yield Edit(*change)


class _Offsets:
    """Offsets of nodes in a source: `ast` counts lines, and bytes of UTF-8 in them."""

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def begin(self, node: Node) -> int:
        return self._at(node.lineno, node.col_offset)

    def end(self, node: Node) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.end_lineno, node.end_col_offset)

    def _at(self, line: int, column: int) -> int:
        before = self._lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(before)


def _changeable(root: ast.AST) -> Iterator[ast.AST]:
    """Nodes below a node, without what is never changed."""
    for name, value in ast.iter_fields(root):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Assert):
                continue
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            yield child
            yield from _changeable(child)


def _changes(node: ast.AST, source: str, offsets: _Offsets) -> Iterator[tuple[str, int, int, str]]:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            for operator, one, other in zip(ops, [left, *others], others, strict=False):
                token, new = _COMPARISONS[type(operator)]
                yield ("comparison", *_between(one, other, token, source, offsets), new)
        case ast.BoolOp(op=operator, values=values):
            token, new = _BOOLEAN[type(operator)]
            one, other = values[:2]
            yield ("boolean", *_between(one, other, token, source, offsets), new)
        case ast.BinOp(op=ast.BitOr(), right=right) if ast.unparse(right)[0].isupper():
            pass  # A union of types.
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC:
            token, new = _ARITHMETIC[type(operator)]
            yield ("arithmetic", *_between(left, right, token, source, offsets), new)
        case ast.Constant(value=bool(value)):
            yield "constant", offsets.begin(node), offsets.end(node), str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield "constant", offsets.begin(node), offsets.end(node), str(value + 1)
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield "return", offsets.begin(value), offsets.end(value), "None"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            begin, end = offsets.begin(test), offsets.end(test)
            yield "condition", begin, end, f"(not ({source[begin:end]}))"


def _between(one: Node, other: Node, token: str, source: str, offsets: _Offsets) -> tuple[int, int]:
    """Offsets of the operator between two operands; brackets may stand there, too."""
    match = re.compile(token).search(source, offsets.end(one), offsets.begin(other))
    assert match is not None, ast.unparse(one)
    return match.span()
