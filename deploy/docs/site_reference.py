"""Docstrings as the pages of the API reference want them.

The docstrings are plain text with Markdown's tables and code: `name`, and blocks that are indented
behind a paragraph. Sphinx reads reStructuredText; the sections (Args, Raises, Source) are left to
its extension napoleon.
"""

from __future__ import annotations

import importlib
import itertools
from typing import Any

EXTRAS_PACKAGES = ["confluent_kafka", "pandas", "pyarrow", "pyspark", "sqlalchemy"]
"""Packages of extras that the documented modules import, and that the site can be built without."""
INDENT = "    "


def with_literal_blocks(lines: list[str]) -> list[str]:
    """A docstring with a marker of reStructuredText in front of each indented block of code.

    A block of code is indented behind a blank line. The text of a section is indented too, but
    there is no blank line between it and the section's name.
    """
    result: list[str] = []
    is_code = False
    for line in lines:
        is_indented = line.startswith(INDENT)
        if is_indented and not is_code and result and not result[-1].strip():
            result += ["::", ""]
            is_code = True
        elif line.strip() and not is_indented:
            is_code = False
        result.append(line)
    return result


def with_tables(lines: list[str]) -> list[str]:
    """A docstring with Markdown's tables as the directive `list-table`."""
    result: list[str] = []
    for is_table, group in itertools.groupby(lines, lambda line: line.lstrip().startswith("|")):
        part = list(group)
        if not is_table:
            result += part
            continue
        margin = part[0][: len(part[0]) - len(part[0].lstrip())]
        rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in part]
        result += [f"{margin}.. list-table::", f"{margin}   :header-rows: 1", ""]
        for first, *others in (rows[0], *rows[2:]):  # The second row is a ruler.
            result += [f"{margin}   * - {first}", *(f"{margin}     - {other}" for other in others)]
    return result


def missing(packages: list[str]) -> list[str]:
    """Packages that cannot be imported here, so that Sphinx has to imitate them."""

    def is_missing(name: str) -> bool:
        try:
            importlib.import_module(name)
        except ImportError:
            return True
        return False

    return [name for name in packages if is_missing(name)]


def _on_docstring(
    app: Any, kind: str, name: str, of: object, options: Any, lines: list[str]
) -> None:
    lines[:] = with_tables(with_literal_blocks(lines))
    if kind in ("attribute", "data", "property"):
        # Napoleon takes the words before a colon in the first line for a type: this is an empty
        # comment.
        lines[:0] = ["..", ""]


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls this."""
    # Before napoleon, which is connected with the usual priority of 500.
    app.connect("autodoc-process-docstring", _on_docstring, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
