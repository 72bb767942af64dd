"""`coordinator explain`, `timeline`, `watch`, `who-blocks`: why a group rebalanced or waits."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc

from coordinator.cli.connection import add_common_flags, credentials_of
from coordinator.cli.output import Row, complain, show
from coordinator.cli.refusals import complaint
from coordinator.client.admin import GroupAdmin
from coordinator.client.wire import code_name
from coordinator.dial import CannotDial
from coordinator.observe.spelling import spell
from coordinator.observe.timeline import as_svg, as_text
from coordinator.printable import printable, printable_lines

ABSENT = "-"
LOOK_S = 1.0


def add_parsers(commands: Any) -> None:  # Any: argparse does not name its type.
    """The four commands."""
    for name, text, run in (
        ("explain", "explain why a group rebalanced, in plain sentences", _explain),
        ("timeline", "draw a rebalance as a timeline, one lane per member", _timeline),
        ("watch", "print and explain each rebalance when it ends", _watch),
        ("who-blocks", "list the members that a group is waiting for", _who_blocks),
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
                "--last", type=int, default=1, metavar="N", help="newest rebalances (default: 1)"
            )
        if name == "timeline":
            command.add_argument(
                "--file",
                type=Path,
                metavar="PICTURE",
                help="write a picture to this .svg or .png file",
            )
        add_common_flags(command)


def _explain(options: argparse.Namespace) -> int:
    def rows(admin: GroupAdmin) -> list[Row]:
        journal = admin.journal(options.group)
        told = [
            {
                "GROUP": rebalance.group_id,
                "GENERATION": str(rebalance.generation_after),
                "CAUSE": rebalance.cause,
                "OUTCOME": rebalance.outcome,
                "EXPLANATION": " ".join(rebalance.explanation),
            }
            for rebalance in _chosen(journal, options)
        ]
        refused = [
            {
                "GROUP": options.group,
                "GENERATION": ABSENT,  # A refused join leads to no generation.
                "CAUSE": "join refused",
                "OUTCOME": code_name(refused.error_code),
                "EXPLANATION": refused.explanation,
            }
            for refused in journal.refused_joins
        ]
        return told + refused

    def text(admin: GroupAdmin) -> str:
        journal = admin.journal(options.group)
        told = [_lines(r.explanation) for r in _chosen(journal, options)]
        told += [_lines([refused.explanation]) for refused in journal.refused_joins]
        return "\n\n".join(told)

    return _tell(options, rows, text)


def _timeline(options: argparse.Namespace) -> int:
    def text(admin: GroupAdmin) -> str:
        chosen = _chosen(admin.journal(options.group), options)
        if options.file is None:
            return "\n\n".join(as_text(rebalance) for rebalance in chosen)
        _write_picture(options.file, as_svg(chosen[0]))
        return printable(str(options.file), None)

    def rows(admin: GroupAdmin) -> list[Row]:
        return [
            {
                "GROUP": rebalance.group_id,
                "GENERATION": str(rebalance.generation_after),
                "CLIENT-ID": member.client_id,
                "CONSUMER-ID": member.member_id,
                "JOINED-AFTER-MS": str(member.joined_at_ms - rebalance.started_at_ms),
                "SYNCED-AFTER-MS": ABSENT
                if member.synced_at_ms < 0
                else str(member.synced_at_ms - rebalance.started_at_ms),
            }
            for rebalance in _chosen(admin.journal(options.group), options)
            for member in rebalance.participants
        ]

    return _tell(options, rows, text)


def _watch(options: argparse.Namespace) -> int:
    with GroupAdmin(options.bootstrap, credentials=credentials_of(options)) as admin:
        try:
            for rebalance in admin.watch_rebalances(options.group):
                print(_lines(rebalance.explanation), end="\n\n", flush=True)
        except KeyboardInterrupt:
            return 0
        except grpc.RpcError as error:
            complain(complaint(options, error))
            return 1
        except CannotDial as error:
            complain(error)
            return 1
    return 0


def _who_blocks(options: argparse.Namespace) -> int:
    def rows(admin: GroupAdmin) -> list[Row]:
        phase = admin.phase(options.group)
        now_ms = time.time() * 1_000
        return [
            {
                "GROUP": options.group,
                "STATE": phase.group_state,
                "FOR": spell(round(now_ms - phase.since_ms)),
                "CLIENT-ID": member.client_id or ABSENT,
                "HOST": member.client_host or ABSENT,
                "CONSUMER-ID": member.member_id,
                "LAST-HEARD": _ago(member.last_heard_ms, now_ms),
                "LEADER": "yes" if member.is_leader else "no",
            }
            for member in phase.awaited
        ]

    def text(admin: GroupAdmin) -> str | None:
        phase = admin.phase(options.group)
        if phase.deadline_ms < 0:
            return (
                f"Group '{printable(options.group)}' is {phase.group_state} and waits for nobody."
            )
        if phase.awaited and not phase.is_initial_delay:
            return None
        ends = datetime.fromtimestamp(phase.deadline_ms / 1_000, UTC)
        what = "the initial delay" if phase.is_initial_delay else "the log"
        return (
            f"Group '{printable(options.group)}' is {phase.group_state} and waits for {what}, "
            f"until {ends:%H:%M:%S} UTC at the latest."
        )

    return _tell(options, rows, text)


# --- Inside -------------------------------------------------------------------------------------


def _tell(
    options: argparse.Namespace,
    rows: Callable[[GroupAdmin], list[Row]],
    text: Callable[[GroupAdmin], str | None],
) -> int:
    """Print text for `--output table`, else rows; rows too where `text` returns None."""
    with GroupAdmin(options.bootstrap, credentials=credentials_of(options)) as admin:

        def tell() -> list[Row]:
            if options.output == "table" and (words := text(admin)) is not None:
                print(printable_lines(words))
                return []
            return rows(admin)

        return show(options, tell)


def _chosen(journal: Any, options: argparse.Namespace) -> list[Any]:  # Any: the wire's types.
    """Rebalances that the options select, newest first. Raises `LookupError` if there are none."""
    found = list(journal.rebalances)
    if options.generation is not None:
        found = [r for r in found if r.generation_after == options.generation]
    if not found:
        which = "" if options.generation is None else f" to generation {options.generation}"
        raise LookupError(f"The journal of group '{options.group}' has no rebalance{which}.")
    return found[: options.last]


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


def _ago(at_ms: int, now_ms: float) -> str:
    return ABSENT if at_ms < 0 else f"{spell(round(now_ms - at_ms))} ago"
