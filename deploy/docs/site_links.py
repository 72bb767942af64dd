"""Links that lead to no page of the site: code, tests, folders.

In a checkout they open the file. On the site there is no such file, and no address of the
repository to lead to, so the words stay and the link goes. Links to pages and pictures are left
to Sphinx, which objects if they lead nowhere.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:`[^`]*`|[^\]`])*)\]\(([^)\s]+)\)")
SPHINXS_OWN = (".md", ".svg", ".png")
START = (
    '<!doctype html><meta http-equiv="refresh" content="0; url={0}"><a href="{0}">Documents</a>\n'
)


def without_dead_ends(text: str) -> str:
    """A page's Markdown, its links to what is no page or picture turned into their words."""

    def judge(link: re.Match[str]) -> str:
        target = link[3].partition("#")[0]
        stays = not target or re.match(r"[a-z]+:", target) or target.endswith(SPHINXS_OWN)
        return link[0] if stays else link[2]

    parts = _BLOCK.split(text)  # Every other one is a block of code.
    parts[::2] = [_LINK.sub(judge, prose) for prose in parts[::2]]
    return "".join(parts)


def _on_read(app: Any, page: str, source: list[str]) -> None:
    source[0] = without_dead_ends(source[0])


def _on_finish(app: Any, error: Exception | None) -> None:
    """The folder's own address leads to the first page."""
    if error is None:
        start = Path(app.outdir, "index.html")
        start.write_text(START.format(f"{app.config.root_doc}.html"), encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls this."""
    app.connect("source-read", _on_read)
    app.connect("build-finished", _on_finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
