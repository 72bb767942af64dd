"""The rows on the page of the command line are those that commands declare; `--rewrite` them."""

from __future__ import annotations

from pathlib import Path

from coordinator.cli.main import parser_for
from coordinator.observe.rows import described
from tests.unit.cli.test_parser import leaves

PAGE = Path(__file__).parents[3] / "deploy/docs/command-line.md"
HEAD = "## Rows\n"
TABLE = "| key | type | column | meaning |\n|---|---|---|---|\n"


def section(kind: type, commands: list[str]) -> str:
    lines = "".join(
        f"| `{column.key}` | {column.type} | {column.heading or '–'} | {column.meaning} |\n"
        for column in described(kind)
    )
    names = ", ".join(f"`{name}`" for name in commands)
    return f"\n### {kind.__name__}\n\n{kind.__doc__} Printed by {names}.\n\n{TABLE}{lines}"


def rows() -> str:
    printed: dict[type, list[str]] = {}
    for words, parser in leaves(parser_for(None)):
        for kind in parser.get_default("kinds") or ():
            printed.setdefault(kind, []).append(" ".join(words))
    return "".join(section(kind, commands) for kind, commands in printed.items())


def test_the_page_has_every_key_of_every_command(request):
    head = PAGE.read_text().partition(HEAD)[0]
    if request.config.getoption("--rewrite"):
        PAGE.write_text(head + HEAD + rows())
    assert PAGE.read_text() == head + HEAD + rows()
