"""The `coordinator` command: its subcommands, and what happens to their errors.

Exit status: 0 done; 1 refused, failed, or partly so; 2 the command line or a setting is wrong.

Only the module of the command that was asked for is imported, and those modules import gRPC and
the server when they run: help, completion and `--version` cost little more than `argparse`.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from importlib import import_module
from io import TextIOWrapper
from itertools import zip_longest

from coordinator import __version__
from coordinator.cli.flags import WATCH_S
from coordinator.cli.parser import Parser

TYPE_CHECKING = False  # See `parser.py`.
if TYPE_CHECKING:
    from collections.abc import Sequence

DONE, FAILED, INTERRUPTED = 0, 1, 130
COMPLETING = "_ARGCOMPLETE"
"""Set by the shell scripts of `coordinator completion`."""

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Groups": {
        "groups": ("groups", "list, describe and change groups and their offsets"),
        "members": ("members", "evict members of session groups"),
        "policy": ("policy", "show and change the settings of session groups"),
        "topics": ("topics", "list topics, and set how many partitions they have"),
        "explain": ("why", "explain why a group rebalanced, in plain sentences"),
        "timeline": ("why", "draw a rebalance as a timeline, one lane per member"),
        "watch": ("why", "print and explain each rebalance when it ends"),
        "who-blocks": ("why", "list the members that a group is waiting for"),
        "replay": ("replay", "run a recording again, and explain its rebalances"),
    },
    "Nodes": {
        "serve": ("start", "run a node"),
        "config": ("config", "show the effective settings and their sources, or check them"),
        "health": ("health", "check whether nodes serve"),
        "cluster": ("cluster", "list nodes and shards, and move shards between nodes"),
        "log": ("log", "dump, verify or back up a data folder"),
        "store": ("store", "prepare a PostgreSQL store, or raise its numbers after a restore"),
    },
    "Command line": {
        "token": ("token", "create bearer tokens"),
        "completion": ("completion", "print the completion script of a shell"),
    },
}
"""Every command: the module that adds it, and its line in the help."""
COMMANDS = {name: about for section in SECTIONS.values() for name, about in section.items()}

HEAD = """usage: coordinator [--help] [--version] COMMAND …

A consumer-group coordinator as a gRPC service.

"""
EPILOG = """
`coordinator COMMAND --help` lists the flags of a command.
Addresses and credentials come from flags, then from COORDINATOR_BOOTSTRAP and COORDINATOR_CLIENT_….
Exit status: 0 done; 1 refused, failed, or partly so; 2 wrong usage or a wrong setting.
"""
_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status. A closed pipe (`| head`) ends it without an error."""
    arguments_given = sys.argv[1:] if arguments is None else list(arguments)
    _accept_any_stdout()
    status = DONE
    try:
        try:
            status = _run(arguments_given)
        except KeyboardInterrupt:
            status = INTERRUPTED
        finally:
            sys.stdout.flush()  # `--help` ends by SystemExit.
    except BrokenPipeError as error:
        if not _stdout_is_closed():
            return _report(error)
    return status


def parser_for(words: Sequence[str] | None) -> Parser:
    """The parser with the flags of the command among the words; None: those of every command."""
    parser = _TopParser(prog="coordinator")
    parser.add_argument("--version", action="version", version=f"coordinator {__version__}")
    parser.set_defaults(run=lambda _: parser.print_help())
    # With `prog` it need not format a usage, for which argparse imports compressors.
    commands = parser.add_subparsers(prog=parser.prog, metavar="COMMAND", parser_class=Parser)
    wanted = next((word for word in words or () if not word.startswith("-")), None)
    modules = dict.fromkeys(
        module for name, (module, _) in COMMANDS.items() if words is None or name == wanted
    )
    for name, (module, text) in COMMANDS.items():
        if module not in modules:
            commands.add_parser(name, help=text)  # Its name alone, for help and completion.
    for module in modules:
        import_module(f"coordinator.cli.{module}").add_parsers(commands)
    parser.announce()
    return parser


class _TopParser(Parser):
    """Its help lists the commands in sections."""

    def format_help(self) -> str:
        sections = [
            f"{title}:\n" + "".join(f"  {name:<12} {text}\n" for name, (_, text) in them.items())
            for title, them in SECTIONS.items()
        ]
        return HEAD + "\n".join(sections) + EPILOG


def _run(arguments: list[str]) -> int:
    if COMPLETING in os.environ:
        from coordinator.cli.completion import complete

        complete(parser_for)
    if arguments == ["--version"]:  # Without the formatter, as above.
        print(f"coordinator {__version__}")
        return DONE
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    options = parser_for(arguments).parse_args(_with_intervals(arguments))
    options.arguments = arguments
    from coordinator.cli.output import reason_of_refusal

    try:
        return reason_of_refusal(options, lambda: _resolve_and_run(options))
    except Exception as error:
        if isinstance(error, ImportError) and error.name == "timer":
            print(f"coordinator: {error}", file=sys.stderr)  # A file of the user's is in the way.
            return FAILED
        if isinstance(error, BrokenPipeError) or getattr(options, "is_server", False):
            raise  # The log of a server has the traceback.
        return _report(error)


def _resolve_and_run(options: argparse.Namespace) -> int:
    if hasattr(options, "connects"):
        from coordinator.cli.connection import resolve

        resolve(options)
    status: int | None = options.run(options)
    return status or DONE


def _with_intervals(arguments: Sequence[str]) -> list[str]:
    """`--watch` without a number gets its default, so that it takes no group's name for one."""
    return [
        f"--watch={WATCH_S:g}" if word == "--watch" and not _NUMBER.fullmatch(following) else word
        for word, following in zip_longest(arguments, arguments[1:], fillvalue="")
    ]


def _report(error: BaseException) -> int:
    """Put the traceback of a bug into a file, and say where it is."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile(
        "w", prefix="coordinator-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        traceback.print_exception(error, file=file)
    print(
        f"coordinator: this is a bug of the command, please report it; details: {file.name}",
        file=sys.stderr,
    )
    return FAILED


def _accept_any_stdout() -> None:
    """Discard output where none is open (`>&-`); escape what its encoding lacks."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # Until the end.
    elif sys.stdout.errors == "strict" and isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _stdout_is_closed() -> bool:
    """True if nobody reads standard output any more; the rest of its buffer is discarded."""
    import select

    stdout = sys.stdout.fileno()
    poll = select.poll()
    poll.register(stdout, select.POLLOUT)
    if not any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
        return False
    # Python flushes standard output once more at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
    return True
