"""The rules of the house that a program can check, each as a function.

A rule takes a file (path and text) and yields its offences. It knows nothing of the disk, so
that `test_tidy.py` can feed it a snippet and see it object. Who may import whom is said in
`pyproject.toml`.
"""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

PRODUCT = ("coordinator/", "timer/")
BENCHMARKS = "tests/bench/"
GENERATED = ("coordinator/v1/", "coordinator/durable/v1/", "coordinator/storage/etcd_api/")
SLOW_MARKERS = ("spark", "faults", "integration", "browser")
FUNCTION_LINES_MAX = 80


@dataclass(frozen=True)
class Source:
    """One file: its path from the root of the repository, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def at(self, line: int, what: str) -> str:
        """An offence, in the form that editors turn into a link."""
        return f"{self.path}:{line}: {what}"


Rule = Callable[[Source], Iterator[str]]
PathRule = Callable[[Collection[str]], Iterator[str]]


# --- Imports: what the contracts in pyproject.toml cannot say --------------------------------


def imported_modules(source: Source) -> Iterator[tuple[int, str]]:
    """Line and full name of every import, also inside functions.

    `from a import b` counts as `a.b` when `a` is a package of ours, because `b` may be a module.
    """
    package = PurePosixPath(source.path).parent.parts
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def package_imports_nothing(source: Source) -> Iterator[str]:
    if source.path == "coordinator/__init__.py":
        for line, module in imported_modules(source):
            yield source.at(line, f"imports {module}: the package itself stays light")


# --- Python ----------------------------------------------------------------------------------


def _dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=inner, attr=name):
            return f"{_dotted(inner)}.{name}"
        case _:
            return ""


def _is_slow(marks: str) -> bool:
    return any(f"mark.{name}" in marks for name in SLOW_MARKERS)


def fast_tests_do_not_sleep(source: Source) -> Iterator[str]:
    """Slow are: a folder named like a slow marker, `pytestmark`, a marked class or function.

    `asyncio.sleep` by its full name is left to tests/conftest.py, which knows the loop: on the
    simulated one it takes no time. Benchmarks run when they are asked for; only their tests count.
    """
    path = PurePosixPath(source.path)
    is_benchmark = source.path.startswith(BENCHMARKS) and not path.name.startswith("test_")
    if path.parts[0] != "tests" or set(path.parts) & set(SLOW_MARKERS) or is_benchmark:
        return
    names = {"time.sleep"}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module in {"time", "asyncio"}:
            names |= {alias.asname or alias.name for alias in node.names if alias.name == "sleep"}
    yield from _sleeps(source, source.tree, names)


def _file_marks(tree: ast.Module) -> str:
    assignments = [node for node in tree.body if isinstance(node, ast.Assign)]
    return " ".join(
        ast.unparse(node.value) for node in assignments if _dotted(node.targets[0]) == "pytestmark"
    )


def _sleeps(source: Source, node: ast.AST, names: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Module) and _is_slow(_file_marks(node)):
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        if any(_is_slow(ast.unparse(decorator)) for decorator in node.decorator_list):
            return
    if isinstance(node, ast.Call) and _dotted(node.func) in names:
        is_yield_only = (
            len(node.args) == 1
            and isinstance(node.args[0], ast.Constant)
            and node.args[0].value == 0
            and _dotted(node.func) != "time.sleep"
        )
        if not is_yield_only:
            yield source.at(node.lineno, "sleeps; use the virtual clock, or mark the test as slow")
    for child in ast.iter_child_nodes(node):
        yield from _sleeps(source, child, names)


def errors_are_not_swallowed(source: Source) -> Iterator[str]:
    broad = {"Exception", "BaseException"}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler):
            caught = {_dotted(part) for part in getattr(node.type, "elts", [node.type]) if part}
            if (node.type is None or caught & broad) and all(map(_does_nothing, node.body)):
                yield source.at(node.lineno, "swallows every error")
        elif isinstance(node, ast.Call) and _dotted(node.func).endswith("suppress"):
            if broad & {_dotted(argument) for argument in node.args}:
                yield source.at(node.lineno, "swallows every error")


def _does_nothing(statement: ast.stmt) -> bool:
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant or isinstance(statement, ast.Pass | ast.Continue)


def functions_fit_on_a_screen(source: Source) -> Iterator[str]:
    """The docstring and the decorators do not count."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                length -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield source.at(node.lineno, f"{node.name} has {length} lines")


# --- Any text --------------------------------------------------------------------------------

_PROMISE = re.compile(r"\b(?:TODO|FIXME)\b(?!\s*\(#\d+\))")
_COMMENT = {".md": "", ".proto": "//", ".js": "//"}


def promises_name_their_issue(source: Source) -> Iterator[str]:
    """A note to self says where it is followed up, by an issue number after the word."""
    for line, text in _comments(source):
        if _PROMISE.search(text):
            yield source.at(line, "a bare note to self; do it, or name the issue: (#12)")


def _comments(source: Source) -> Iterator[tuple[int, str]]:
    suffix = PurePosixPath(source.path).suffix
    if suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
        return
    sign = _COMMENT.get(suffix, "#")
    for number, line in enumerate(source.lines, start=1):
        _, found, after = line.partition(sign) if sign else ("", " ", line)
        if found:
            yield number, after


# Spelled in pieces, so that this file does not offend itself.
_MACHINE = re.compile(r"(?<![\w.~-])/(?:work|root|home/\w+|opt/dev)/|\.\./" + "shared/")
_TEMPORARY = re.compile(r"""["'](?:/tmp|/var/tmp)\b""")  # Quoted: a path that is used.


def no_path_of_a_machine(source: Source) -> Iterator[str]:
    is_program = source.path.startswith((*PRODUCT, BENCHMARKS)) and source.path.endswith(".py")
    for number, line in enumerate(source.lines, start=1):
        if found := _MACHINE.search(line):
            yield source.at(number, f"names a path of one machine: {found.group()}")
        if is_program and _TEMPORARY.search(line):
            yield source.at(number, "a temporary path that is not from `tempfile`")


# --- Names and links -------------------------------------------------------------------------

_VAGUE = re.compile(r"(?:^|_)(?:utils?|helpers?|managers?|misc)$")
ROOT_NAMES = set(
    "pyproject.toml protos coordinator timer tests deploy README.md LICENSE CHANGELOG.md "
    ".gitignore .gitattributes .dockerignore .editorconfig .github .ci".split()
)


def names_say_what_is_inside(paths: Collection[str]) -> Iterator[str]:
    for path in paths:
        for part in PurePosixPath(path).parts:
            if _VAGUE.search(part.partition(".")[0].lower()):
                yield f"{path}:1: {part} does not say what is inside"


def root_holds_only_what_it_should(paths: Collection[str]) -> Iterator[str]:
    for name in sorted({PurePosixPath(path).parts[0] for path in paths} - ROOT_NAMES):
        yield f"{name}:1: does not belong into the root"


_LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def links_resolve(source: Source, paths: Collection[str]) -> Iterator[str]:
    """Every link of a Markdown file to a file or folder of the repository, among `paths`."""
    known = set(paths) | {str(above) for path in paths for above in PurePosixPath(path).parents}
    prose = _CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), source.text)
    for match in _LINK.finditer(prose):
        target = (match.group(1) or match.group(2)).partition("#")[0]
        if not target or re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue  # A heading of this page, or somewhere else.
        start = "" if target.startswith("/") else str(PurePosixPath(source.path).parent)
        if _resolve(start, target.lstrip("/")) not in known:
            line = prose.count("\n", 0, match.start()) + 1
            yield source.at(line, f"the link to {target} leads nowhere")


def _resolve(start: str, target: str) -> str:
    parts: list[str] = []
    for part in (*PurePosixPath(start).parts, *PurePosixPath(target).parts):
        if part == "..":
            if not parts:
                return "outside of the repository"
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts) or "."


PYTHON_RULES: list[Rule] = [
    package_imports_nothing,
    fast_tests_do_not_sleep,
    errors_are_not_swallowed,
    functions_fit_on_a_screen,
]
TEXT_RULES: list[Rule] = [promises_name_their_issue, no_path_of_a_machine]
PATH_RULES: list[PathRule] = [names_say_what_is_inside, root_holds_only_what_it_should]
