"""Output of commands, and their exit status.

An action returns an `Output`: typed rows of a declared kind (`rows.py`). `show` prints it in the
format asked for, or says in one sentence why there is none (`refusals.py`). Rows go to standard
output; sentences beside them go to standard error, so that programs read rows alone.

Exit status: `DONE`; `REFUSED`: refused, failed, or some of several changes failed; `WRONG_USAGE`:
the command line or a setting is wrong.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.cli.flags import WrongUsage
from coordinator.cli.formats import as_json, as_table, as_yaml
from coordinator.observe.rows import TONES, cell, columns_of, headings_of, plain
from coordinator.printable import printable, printable_lines, short_id

DONE, REFUSED, WRONG_USAGE = 0, 1, 2
CLEAR = "\x1b[H\x1b[2J\x1b[3J"


@dataclass(frozen=True, slots=True)
class Output:
    """Result of a command: rows, and sentences beside them.

    Args:
        kind: dataclass of the rows, declared with `column`; the headings if there are no rows.
        empty: a sentence for people if there are no rows.
        notes: sentences for people, after the rows.
        text: what people read instead of a table; programs get the rows.
        is_exact: the text is for programs: it is escaped on terminals alone.
        has_failed: exit status 1 though no row has an `error`.
    """

    kind: type
    rows: Sequence[Any]  # Any: instances of `kind`.
    empty: str = ""
    notes: Sequence[str] = ()
    text: str | None = None
    is_exact: bool = False
    has_failed: bool = False

    @property
    def status(self) -> int:
        """Exit status: 1 if any row has an error."""
        failed = any(getattr(row, "error", None) is not None for row in self.rows)
        return REFUSED if failed or self.has_failed else DONE


def show(options: argparse.Namespace, action: Callable[[], Output]) -> int:
    """Print what an action returns, or its refusal; the exit status.

    With `--watch` it is repeated until Ctrl-C. Refusals do not end that, unless the first one is.
    """
    every_s = getattr(options, "watch", None)
    clear = every_s is not None and sys.stdout.isatty()

    def once() -> int:
        output = action()
        if clear:
            print(CLEAR, end="")
        return _print(options, output)

    status = reason_of_refusal(options, once)
    if every_s is None or status == WRONG_USAGE:
        return status
    try:
        while True:
            time.sleep(every_s)
            reason_of_refusal(options, once)
    except KeyboardInterrupt:
        return DONE


def reason_of_refusal(options: argparse.Namespace, run: Callable[[], int]) -> int:
    """Run a command or a part of it; a refusal is printed as a sentence. Bugs are raised."""
    try:
        return run()
    except Exception as error:
        from coordinator.cli.refusals import refusal  # It imports gRPC.

        if (reason := refusal(error, options)) is None:
            raise
        complain(reason)
        return WRONG_USAGE if isinstance(error, WrongUsage) else REFUSED


def show_each(options: argparse.Namespace, rows: Iterable[Any]) -> None:  # Any: dataclasses.
    """Print rows as they come: a line of JSON each, or an item of a YAML list."""
    for row in rows:
        plain_row = plain(row)
        print(as_json(plain_row) if options.output == "json" else as_yaml([plain_row]), flush=True)


def complain(reason: object) -> None:
    """Print an error on standard error, as one line."""
    print(f"coordinator: {printable(str(reason), None)}", file=sys.stderr)


def has_colour(options: argparse.Namespace) -> bool:
    """True if tables on standard output are coloured: `--color`, NO_COLOR, then the terminal."""
    wanted = getattr(options, "color", "auto")
    if wanted != "auto":
        return bool(wanted == "always")
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not is_plain and sys.stdout.isatty()


def rendered(output: Output, form: str, *, colour: bool = False, width: int = 0) -> str:
    """The rows in a format: `table`, `json` or `yaml`.

    Args:
        width: of the terminal: a wider table has short forms of member ids; 0: any.
    """
    if form != "table":
        content = [plain(row) for row in output.rows]
        return as_json(content, indent=2) if form == "json" else as_yaml(content)
    if output.text is not None:
        is_raw = output.is_exact and not sys.stdout.isatty()
        return output.text if is_raw else printable_lines(output.text)
    headings, columns = headings_of(output.kind), columns_of(output.kind)
    cells = [
        [(columns[key].text or cell)(getattr(row, key, None)) for key in headings]
        for row in output.rows
    ]
    tones = {number: TONES for number, key in enumerate(headings) if columns[key].is_state}
    if width and max(map(len, as_table(headings.values(), cells).split("\n"))) > width:
        cells = [list(map(short_id, row)) for row in cells]
    return as_table(headings.values(), cells, tones if colour else None)


# --- Inside -------------------------------------------------------------------------------------


def _print(options: argparse.Namespace, output: Output) -> int:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    if text := rendered(output, options.output, colour=has_colour(options), width=width):
        print(text, flush=True)
    if options.output == "table":
        for sentence in (*([] if output.rows else [output.empty]), *output.notes):
            if sentence:
                print(printable_lines(sentence), file=sys.stderr)
    return output.status
