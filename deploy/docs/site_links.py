"""Links that lead to no page of the site: code, tests, folders.

In a checkout they open the file. On the site there is no such file, and no address of the
repository to lead to, so the words stay and the link goes. Links to pages and pictures are left
to Sphinx, which objects if they lead nowhere.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

_CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:`[^`]*`|[^\]`])*)\]\(([^)\s]+)\)")
PICTURES = (".svg", ".png")
START = (
    '<!doctype html><meta http-equiv="refresh" content="0; url={0}"><a href="{0}">Documents</a>\n'
)


def without_dead_ends(text: str, folder: str, pages: set[str]) -> str:
    """A page's Markdown, its links to files that are not pages turned into their words.

    Args:
        folder: of the page, from the root of the repository; "" for the root itself.
        pages: paths of all pages, from the root.
    """

    def judge(found: re.Match[str]) -> str:
        target = found[3].partition("#")[0]
        if not target or re.match(r"[a-z]+:", target) or target.endswith(PICTURES):
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        return found[0] if path in pages else found[2]

    kept: dict[str, str] = {}

    def hide(found: re.Match[str]) -> str:
        if not found[0].startswith("```"):
            return found[0]
        kept[f"\0{len(kept)}\0"] = found[0]
        return f"\0{len(kept) - 1}\0"

    text = _LINK.sub(judge, _CODE.sub(hide, text))
    for mark, block in kept.items():
        text = text.replace(mark, block)
    return text


def _on_read(app: Any, page: str, source: list[str]) -> None:
    pages = {f"{name}.md" for name in app.env.found_docs}
    source[0] = without_dead_ends(source[0], posixpath.dirname(page), pages)


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
