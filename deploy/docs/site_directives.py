"""What the pages ask for that Markdown has not: diagrams, and the table of settings."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, ClassVar

import mmdr
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from coordinator.settings import BOUNDS, CHOICES, Settings, meanings

MOST = 2**31 - 1
"""A bound that is only the type's."""


class Mermaid(Directive):
    """A diagram in Mermaid's language, drawn now, as SVG inside the page."""

    has_content = True
    optional_arguments: ClassVar[int] = 1

    def run(self) -> list[nodes.Node]:
        try:
            svg = mmdr.render("\n".join(self.content)).svg()
        except (RuntimeError, ValueError) as error:
            raise self.error(f"this diagram cannot be drawn: {error}") from error
        # Several diagrams of a page must not have ids in common.
        own = f"diagram-{self.lineno}"
        svg = re.sub(r'(id="|url\(#|href="#|aria-labelledby="|#)merman', rf"\1{own}", svg)
        # On white, whatever the page's colours are: the diagram has its own.
        figure = f'<figure class="diagram" style="background: white">{svg}</figure>'
        return [nodes.raw("", figure, format="html")]


class SettingsTable(Directive):
    """Every setting with its default, its bounds and its meaning."""

    def run(self) -> list[nodes.Node]:
        notes = meanings()
        lines = ["| setting | meaning |", "|---|---|"]
        for field in fields(Settings):
            meaning = notes[field.name].replace("|", r"\|").replace("*", r"\*")
            facts = "; ".join(filter(None, [f"Default {_code(field.default)}", _range(field.name)]))
            lines.append(f"| `{field.name}` | {meaning} *{facts}.* |")
        parent = nodes.container()
        self.state.nested_parse(StringList(lines, source="settings"), self.content_offset, parent)
        return list(parent.children)


def _code(value: Any) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:,}`" if isinstance(value, int) else f"`{value}`" if value else "empty"


def _range(name: str) -> str:
    if name in BOUNDS:
        low, high = BOUNDS[name]
        return f"at least {low:,}" if high == MOST else f"{low:,} to {high:,}"
    return ", ".join(f"`{choice}`" for choice in CHOICES.get(name, ()))


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls this."""
    app.add_directive("mermaid", Mermaid)
    app.add_directive("settings", SettingsTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
