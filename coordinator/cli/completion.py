"""`coordinator completion`: scripts that let shells complete commands, flags and their values.

The scripts are those of argcomplete. At each Tab they run `coordinator` with a variable that has
`main` call `complete`, which asks the parser of the command on the line; no server is asked.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any, Never

from coordinator.cli.parser import Parser, RawFormatter

SHELLS = {
    "bash": 'eval "$(coordinator completion bash)"',
    "zsh": 'eval "$(coordinator completion zsh)"',
    "fish": "coordinator completion fish | source",
}
"""Supported shells, and the line for their start-up file."""


def add_parsers(commands: Any) -> None:  # Any: argparse does not name its type.
    lines = "\n".join(f"  {shell:<5} {line}" for shell, line in SHELLS.items())
    command = commands.add_parser(
        "completion",
        help="print the completion script of a shell",
        description="Print the script that lets a shell complete commands, flags and values.\n"
        f"Add its line to ~/.bashrc, ~/.zshrc (after compinit) or config.fish:\n\n{lines}\n",
        formatter_class=RawFormatter,
    )
    command.add_argument("shell", choices=tuple(SHELLS), help="the shell")
    command.set_defaults(run=_print_script)


def complete(parser_for: Callable[[Sequence[str]], Parser]) -> Never:
    """Answer a shell's request for completions, and end the process."""
    import argcomplete

    words = os.environ.get("COMP_LINE", "").split()[1:]
    # No further import than the parser's: the word that is being completed is no command yet.
    argcomplete.autocomplete(parser_for(words), always_complete_options=False)
    raise SystemExit(1)  # It has ended the process, unless the variables are incomplete.


def _print_script(options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["coordinator"], shell=options.shell))
    return 0
