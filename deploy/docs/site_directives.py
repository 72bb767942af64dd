"""Directives of the pages that Markdown lacks: diagrams."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import mmdr
from docutils import nodes
from docutils.parsers.rst import Directive


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


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls this."""
    app.add_directive("mermaid", Mermaid)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
