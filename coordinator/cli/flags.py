"""Flags that many commands share, and the error for wrong ones."""

from __future__ import annotations

import argparse

FORMATS = ("table", "json", "yaml")
WATCH_S = 2.0


class WrongUsage(ValueError):
    """The command line asks for something that cannot be. The message says what can be."""


def add_output_flag(command: argparse.ArgumentParser, *kinds: type) -> None:
    """Add `--output` and `--color`. `kinds`: the rows that the command prints, as documented."""
    command.set_defaults(kinds=kinds)
    command.add_argument(
        "-o",
        "--output",
        choices=FORMATS,
        default="table",
        help="format: table for people, json or yaml for programs (default: table)",
    )
    command.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="colours in tables; auto: on terminals, unless NO_COLOR is set (default: auto)",
    )


def add_watch_flag(command: argparse.ArgumentParser) -> None:
    """Add `--watch` to a command that only reads and ends in `show`."""
    command.add_argument(
        "--watch",
        type=seconds,
        nargs="?",
        const=WATCH_S,
        metavar="SECONDS",
        help=f"repeat every SECONDS (default: {WATCH_S:g}) until Ctrl-C",
    )


def count_up_to(most: int, text: str) -> int:
    """The number from 1 to `most` in an argument. Raises `ArgumentTypeError`."""
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {most}")
    return int(text)


def seconds(text: str) -> float:
    """The number of seconds in an argument. Raises `ArgumentTypeError`."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0.1 to 86400")
    return value
