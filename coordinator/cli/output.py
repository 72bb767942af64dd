"""Rows on standard output: a table to read, JSON or YAML to work on."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

import grpc

Row = dict[str, str]
FAILED = 1


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


def add_common_flags(command: argparse.ArgumentParser) -> None:
    """Whom to ask, and how to say it."""
    command.add_argument(
        "--bootstrap",
        default="127.0.0.1:7400",
        metavar="HOST:PORT[,…]",
        help="any node; several with commas between",
    )
    command.add_argument("-o", "--output", choices=tuple(FORMATS), default="table")


def show(options: argparse.Namespace, action: Callable[[], list[Row]]) -> int:
    """Print the rows of an action, or what was wrong; the exit status."""
    try:
        rows = action()
    except grpc.RpcError as error:
        what = f"no answer from {options.bootstrap}: {error.details()}"
        print(f"coordinator: {what}", file=sys.stderr)
        return FAILED
    except (LookupError, ValueError, OSError) as error:
        print(f"coordinator: {error.args[-1]}", file=sys.stderr)
        return FAILED
    try:
        if text := FORMATS[options.output](rows):
            print(text, flush=True)
    except BrokenPipeError:
        sys.stderr.close()  # Whoever read has read enough.
    return 0
