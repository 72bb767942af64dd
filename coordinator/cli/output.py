"""Rows on standard output: a table to read, JSON or YAML to work on."""

from __future__ import annotations

import json
from collections.abc import Callable

Row = dict[str, str]


def _table(rows: list[Row]) -> str:
    if not rows:
        return ""
    columns = list(rows[0])
    widths = {c: max(len(c), *(len(row[c]) for row in rows)) for c in columns}
    lines = [{c: c for c in columns}, *rows]
    return "\n".join("  ".join(f"{row[c]:{widths[c]}}" for c in columns).rstrip() for row in lines)


def _json(rows: list[Row]) -> str:
    return json.dumps(rows, indent=2)


def _yaml(rows: list[Row]) -> str:
    """A list of flat mappings. Every JSON string is a YAML string: no quoting rules are needed."""
    if not rows:
        return "[]"
    lines = []
    for row in rows:
        for number, (key, value) in enumerate(row.items()):
            lines.append(f"{'  ' if number else '- '}{json.dumps(key)}: {json.dumps(value)}")
    return "\n".join(lines)


FORMATS: dict[str, Callable[[list[Row]], str]] = {"table": _table, "json": _json, "yaml": _yaml}
"""By the names of `--output`."""
