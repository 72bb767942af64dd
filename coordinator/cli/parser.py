"""The parser of command lines: short errors that name the closest word, help in sections.

An `argparse` parser. Errors are one sentence and the command whose help says more: the usage of a
command with a hundred flags would push the error off the screen. Flags cannot be abbreviated, so
that a new one never changes what a script means.
"""

from __future__ import annotations

import argparse
import re

TYPE_CHECKING = False  # Importing `typing` costs half of what `argparse` does.
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Never

WRONG_USAGE = 2
_FORMS = {"int": "a whole number", "float": "a number"}
_VALUE = re.compile(r"invalid (\w+) value: (.*)", re.DOTALL)


class Formatter(argparse.HelpFormatter):
    """Help whose usage has the arguments alone: the flags, up to a hundred, are listed below it."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:
        shown = [action for action in actions if not action.option_strings or action.required]
        self._prog += " [FLAG …]"
        super().add_usage(usage, shown, [], prefix)


class RawFormatter(Formatter, argparse.RawDescriptionHelpFormatter):
    """The same, with the lines of the description as they are."""


class Parser(argparse.ArgumentParser):
    """Parser of the command and of every subcommand."""

    def __init__(self, **how: Any) -> None:  # Any: argparse's own arguments.
        description = how.get("description") or ""
        if description and not description.endswith((".", "\n")):
            how["description"] = f"{description[0].upper()}{description[1:]}."
        super().__init__(**{"allow_abbrev": False, "formatter_class": Formatter, **how})

    def announce(self) -> None:
        """Have the options that are parsed say which parser knows their command best."""
        self.set_defaults(parser=self)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for inner in action.choices.values():
                    inner.announce()

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; an unknown flag is refused with the closest one of its command."""
        options, rest = self.parse_known_args(args, namespace)
        if rest:
            # The parser that knows best is the last one: that of the subcommand.
            known = getattr(options, "parser", self)
            if not known.took(rest, options):
                known.refuse_rest(rest)
        return options

    def took(self, words: Sequence[str], options: argparse.Namespace) -> bool:
        """Add words to the argument that may be repeated: `a --flag b` is `a b --flag`.

        `argparse` itself takes those on one side of a flag. False if the command has no such
        argument, or a word is a flag.
        """
        repeated = [a for a in self._actions if not a.option_strings and a.nargs in ("*", "+")]
        if not repeated or any(word.startswith("-") for word in words):
            return False
        try:
            more = [self._get_value(repeated[0], word) for word in words]
        except argparse.ArgumentError as error:
            self.error(str(error))
        setattr(options, repeated[0].dest, [*getattr(options, repeated[0].dest), *more])
        return True

    def refuse_rest(self, rest: Sequence[str]) -> Never:
        """Refuse what was not understood. Ends the process."""
        flag = next((word for word in rest if word.startswith("-") and len(word) > 1), None)
        if flag is None:
            self.error(f"unexpected: {' '.join(rest)}")
        self.error(self._unknown_flag(flag))

    def error(self, message: str) -> Never:
        """Print a sentence and where help is; exit status 2."""
        from coordinator.printable import printable

        if match := _VALUE.search(message):
            form = _FORMS.get(match[1])
            reason = f"{match[2]} is not {form}" if form else f"{match[2]} is not valid"
            message = message[: match.start()] + reason
        message = message.removeprefix("argument ")
        self.exit(
            WRONG_USAGE,
            f"coordinator: {printable(message, None)}\nTry `{self.prog} --help`.\n",
        )

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"there is no command {value!r}; {_nearest(value, choices)}")
        raise argparse.ArgumentError(action, f"{value!r} is none of {', '.join(choices)}")

    def _unknown_flag(self, flag: str) -> str:
        name = flag.partition("=")[0]
        known = [option for option in self._option_string_actions if option.startswith("--")]
        return f"there is no flag {name}{_hint(name, known)}"


def add_actions(parser: argparse.ArgumentParser) -> Any:  # Any: argparse's own has no public type.
    """Add subcommands to a command; without one, its help is printed."""

    def print_help(options: argparse.Namespace) -> int:
        parser.print_help()
        return 0

    parser.set_defaults(run=print_help)
    return parser.add_subparsers(
        prog=parser.prog, metavar="ACTION", title="actions", parser_class=Parser
    )


def _nearest(word: str, known: Sequence[str]) -> str:
    hint = _hint(word, known).removeprefix("; ")
    return hint or f"there are {', '.join(known)}"


def _hint(word: str, known: Iterable[str]) -> str:
    import difflib  # Only for those who err.

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
