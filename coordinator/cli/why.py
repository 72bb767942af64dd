"""`coordinator explain`, `timeline`, `watch`, `who-blocks`: why a group rebalanced or waits."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coordinator.cli.connection import add_common_flags
from coordinator.cli.flags import count_up_to
from coordinator.cli.output import DONE, REFUSED, Output, complain, show, show_each
from coordinator.observe.journal_rows import (
    Blocking,
    Explained,
    ExplainedPlan,
    HandoffLineRow,
    LaneRow,
    explained,
    handoff_row,
    plan_row,
)
from coordinator.printable import printable

if TYPE_CHECKING:
    from coordinator.operator.admin import GroupAdmin


def add_parsers(commands: Any) -> None:  # Any: argparse does not name its type.
    for name, text, run, kind in (
        ("explain", "explain why a group rebalanced, in plain sentences", _explain, Explained),
        ("timeline", "draw a rebalance as a timeline, one lane per member", _timeline, LaneRow),
        ("watch", "print and explain each rebalance when it ends", _watch, Explained),
        ("who-blocks", "list the members that a group is waiting for", _who_blocks, Blocking),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        if name == "watch":
            command.add_argument("group", nargs="*", help="group ids (default: all groups)")
        else:
            command.add_argument("group", help="group id")
        if name in ("explain", "timeline"):
            command.add_argument(
                "generation",
                nargs="?",
                type=int,
                help="generation that the rebalance led to (default: the newest)",
            )
            command.add_argument(
                "--last",
                type=partial(count_up_to, 1_000),
                default=1,
                metavar="N",
                help="newest rebalances (default: 1)",
            )
        if name == "timeline":
            command.add_argument(
                "--file",
                type=Path,
                metavar="PICTURE",
                help="write a picture to this .svg or .png file",
            )
        add_common_flags(command, kind, can_watch=name == "who-blocks")


def _explain(options: argparse.Namespace) -> int:
    from coordinator.cli.group_views import unassigned_topics
    from coordinator.cli.rebalance_views import refused

    def explain(admin: GroupAdmin) -> Output:
        journal = admin.journal(options.group)
        chosen = _chosen(journal, options)
        if chosen[0].HasField("session_plan"):
            text = "\n\n".join(_lines(plan.explanation) for plan in chosen)
            return Output(ExplainedPlan, [plan_row(plan) for plan in chosen], text=text)
        explanations = [_lines(r.explanation) for r in chosen]
        explanations += [_lines([join.explanation]) for join in journal.refused_joins]
        with suppress(LookupError):
            explanations += unassigned_topics(admin.existing_group(options.group))
        return Output(
            Explained,
            [
                *map(explained, chosen),
                *(refused(options.group, join) for join in journal.refused_joins),
            ],
            text="\n\n".join(explanations),
        )

    return _show(options, explain)


def _timeline(options: argparse.Namespace) -> int:
    from coordinator.cli.rebalance_views import lane_rows
    from coordinator.observe.timeline import as_text
    from coordinator.observe.timeline_svg import as_svg

    def draw(admin: GroupAdmin) -> Output:
        journal = admin.journal(options.group)
        chosen = _chosen(journal, options)
        if chosen[0].HasField("session_plan"):
            return _handoffs(options, journal, chosen)
        if options.file is None:
            text = "\n\n".join(as_text(rebalance) for rebalance in chosen)
        else:
            _write_picture(options.file, as_svg(chosen[0]))
            text = printable(str(options.file), None)
        return Output(LaneRow, [row for entry in chosen for row in lane_rows(entry)], text=text)

    return _show(options, draw)


def _handoffs(options: argparse.Namespace, journal: Any, chosen: list[Any]) -> Output:
    """Hand-offs that were opened since the oldest of some plans. Any: the wire's types."""
    from coordinator.cli.session_journal import timeline

    if options.file is not None:
        raise LookupError("Hand-offs of a session group are drawn as text alone.")
    since_ms = min(plan.ended_at_ms for plan in chosen)
    handoffs = [handoff for handoff in journal.session_handoffs if handoff.opened_at_ms >= since_ms]
    rows = [handoff_row(options.group, handoff) for handoff in handoffs]
    text = timeline(options.group, handoffs, chosen)
    empty = "Nothing stood idle and no hand-off has ended since: give --last N for older plans."
    return Output(HandoffLineRow, rows, text=text, empty=empty)


def _watch(options: argparse.Namespace) -> int:
    from coordinator.cli.connection import credentials_of
    from coordinator.cli.refusals import refusal
    from coordinator.operator.admin import GroupAdmin

    with GroupAdmin(options.bootstrap, credentials=credentials_of(options)) as admin:
        try:
            for rebalance in admin.watch_rebalances(options.group):
                if options.output == "table":
                    print(_lines(rebalance.explanation), end="\n\n", flush=True)
                else:
                    show_each(options, [_watched(rebalance)])
        except KeyboardInterrupt:
            return DONE
        except Exception as error:
            if (reason := refusal(error, options)) is None:
                raise
            complain(reason)
            return REFUSED
    return DONE


def _watched(record: Any) -> Any:  # Any: the wire's type, and one of three kinds of rows.
    if record.HasField("session_plan"):
        return plan_row(record)
    if record.HasField("session_handoff"):
        return handoff_row(record.group_id, record.session_handoff)
    return explained(record)


def _who_blocks(options: argparse.Namespace) -> int:
    from coordinator.cli.rebalance_views import blocking

    def ask(admin: GroupAdmin) -> Output:
        phase = admin.phase(options.group)
        rows = blocking(options.group, phase, round(time.time() * 1_000))
        who = f"Group '{printable(options.group)}' is {phase.group_state}"
        text = None
        if phase.deadline_ms < 0:
            text = f"{who} and waits for nobody."
        elif not phase.awaited or phase.is_initial_delay:
            ends = datetime.fromtimestamp(phase.deadline_ms / 1_000, UTC)
            blocker = "the initial delay" if phase.is_initial_delay else "the log"
            if phase.group_state == "Assigning":
                blocker = "the next plan"
            text = f"{who} and waits for {blocker}, until {ends:%H:%M:%S} UTC at the latest."
        return Output(Blocking, rows, text=text)

    return _show(options, ask)


# --- Inside -------------------------------------------------------------------------------------


def _show(options: argparse.Namespace, action: Callable[[GroupAdmin], Output]) -> int:
    """Show the output of an action that asks nodes."""
    from coordinator.cli.connection import credentials_of
    from coordinator.operator.admin import GroupAdmin

    with GroupAdmin(options.bootstrap, credentials=credentials_of(options)) as admin:
        return show(options, lambda: action(admin))


def _chosen(journal: Any, options: argparse.Namespace) -> list[Any]:  # Any: the wire's types.
    """Rebalances that the options select, newest first. Raises `LookupError` if there are none."""
    rebalances = list(journal.rebalances)
    if not rebalances:
        raise LookupError(
            f"The journal of group '{printable(options.group)}' has no rebalance: it never "
            "rebalanced, or the node keeps no journal (group_rebalance_journal)."
        )
    if options.generation is None:
        return rebalances[: options.last]
    chosen = [r for r in rebalances if r.generation_after == options.generation]
    if not chosen:
        known = ", ".join(dict.fromkeys(str(r.generation_after) for r in rebalances))
        raise LookupError(
            f"The journal of group '{printable(options.group)}' has no rebalance to generation "
            f"{options.generation}; it has those to {known}."
        )
    return chosen[: options.last]


def _lines(sentences: Iterable[str]) -> str:
    """One line per sentence, escaped: an older node may not have done so."""
    return "\n".join(printable(sentence, None) for sentence in sentences)


def _write_picture(path: Path, svg: str) -> None:
    """Write an SVG, or a PNG if the file is named so. Raises `LookupError` without resvg_py."""
    if path.suffix != ".png":
        path.write_text(svg)
        return
    try:
        import resvg_py
    except ImportError:
        raise LookupError("PNG needs the extra: consumer-group-coordinator[png]") from None
    path.write_bytes(bytes(resvg_py.svg_to_bytes(svg_string=svg)))
