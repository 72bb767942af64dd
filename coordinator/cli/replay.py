"""`coordinator replay`: run a recording again, without a coordinator."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from coordinator.cli.flags import add_output_flag
from coordinator.cli.output import RENDERERS, Row, complain
from coordinator.core.records import JOURNAL_LENGTH, RebalanceRecord
from coordinator.observe.explain import explain
from coordinator.printable import printable


def add_parsers(commands: Any) -> None:  # Any: argparse does not name its type.
    """The command and its flags."""
    text = "run a recording made with --record-dir again, and explain its rebalances"
    command = commands.add_parser("replay", help=text, description=text)
    command.set_defaults(run=_replay)
    command.add_argument("file", type=Path, help="recording of one shard")
    add_output_flag(command)


def _replay(options: argparse.Namespace) -> int:
    from coordinator.runtime.replaying import NoRecording, replay

    try:
        with options.file.open(encoding="ascii", errors="replace") as lines:
            found = replay(lines)
    except NoRecording as error:
        complain(f"{options.file}: {error}")
        return 1
    except OSError as error:
        complain(f"{options.file}: {error.strerror}")
        return 1
    journals: dict[str, list[RebalanceRecord]] = {}
    rows: list[Row] = []
    for record in found.rebalances:
        before = journals.setdefault(record.group_id, [])
        told = explain(record, before[::-1])
        before.append(record)
        del before[:-JOURNAL_LENGTH]
        rows.append(
            {
                "GROUP": record.group_id,
                "GENERATION": str(record.generation_after),
                "CAUSE": record.cause,
                "OUTCOME": record.outcome,
                "EXPLANATION": " ".join(told),
            }
        )
    verdict = "the same state" if not found.differences else "; ".join(found.differences)
    if options.output != "table":
        print(RENDERERS[options.output](rows))
    else:
        print("\n\n".join(printable(row["EXPLANATION"], None) for row in rows))
    checked = f"{found.inputs} inputs, {found.checked} states compared: {verdict}"
    print(printable(checked, None), file=sys.stderr)
    return 1 if found.differences or not found.checked else 0
