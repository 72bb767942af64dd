"""`coordinator replay`: run a recording again, without a coordinator."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coordinator.cli.flags import add_output_flag
from coordinator.cli.output import Output, rendered, show
from coordinator.observe.journal_rows import Explained, explained
from coordinator.printable import printable

if TYPE_CHECKING:
    from coordinator.core.values.rebalance_journal import RebalanceRecord


def add_parsers(commands: Any) -> None:  # Any: argparse does not name its type.
    text = "run a recording made with --record-dir again, and list its rebalances"
    command = commands.add_parser("replay", help=text, description=text)
    command.set_defaults(run=_replay)
    command.add_argument("file", type=Path, help="recording of one shard")
    add_output_flag(command, Explained)


def _replay(options: argparse.Namespace) -> int:
    return show(options, lambda: _run_again(options.file))


def _run_again(path: Path) -> Output:
    """Run a recording. Raises `NoRecording`, a ValueError, or OSError."""
    from coordinator.core.values.rebalance_journal import JOURNAL_LENGTH
    from coordinator.runtime.replaying import NoRecording, replay
    from coordinator.service.grpc.translate.rebalances import rebalance_message

    try:
        with path.open(encoding="ascii", errors="replace") as lines:
            replayed = replay(lines)
    except NoRecording as error:
        raise NoRecording(f"{path}: {error}") from error
    journals: dict[str, list[RebalanceRecord]] = {}
    rows = []
    for record in replayed.rebalances:
        before = journals.setdefault(record.group_id, [])
        rows.append(explained(rebalance_message(record, before[::-1])))
        before.append(record)
        del before[:-JOURNAL_LENGTH]
    table = rendered(Output(Explained, rows), "table")
    differences = "".join(f"Difference: {difference}\n" for difference in replayed.differences)
    verdict = "; ".join(replayed.differences) or "the same state"
    summary = f"{replayed.inputs} inputs, {replayed.checked} states compared: {verdict}"
    print(printable(summary, None), file=sys.stderr)  # Programs read rows from standard output.
    has_failed = bool(replayed.differences) or not replayed.checked
    return Output(Explained, rows, text=differences + table, has_failed=has_failed)
