"""The documents as a site: built without a warning and without a network, figures with a source."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
import zlib
from html.parser import HTMLParser
from pathlib import Path

import pytest

from coordinator.assignors import TopicPartition
from coordinator.operator.admin import GroupAdmin
from coordinator.settings import SETTINGS
from tests.kit.documents import blocks
from tests.kit.serving import Process

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "deploy/docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Built by the command of `poe docs`, in another folder."""
    tasks = tomllib.loads((ROOT / "tests/tasks.toml").read_text())["tool"]["poe"]["tasks"]
    python, *words, _ = shlex.split(tasks["docs"]["cmd"])
    out = tmp_path_factory.mktemp("site")
    assert python == "python"
    done = subprocess.run(
        [sys.executable, *words, str(out)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return out


class Loaded(HTMLParser):
    """Resources that a browser fetches with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag in ("script", "img", "iframe", "source") and found.get("src"):
            self.addresses.append(found["src"])
        if tag == "link" and "stylesheet" in found.get("rel", ""):
            self.addresses.append(found["href"])


def test_no_page_loads_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        loaded = Loaded()
        loaded.feed(page.read_text())
        for address in loaded.addresses:
            assert not re.match(r"(\w+:)?//", address), (page, address)
            assert (page.parent / address.partition("?")[0]).exists(), (page, address)
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(\w+:)?//|@import", style.read_text()), style


def test_every_diagram_is_drawn(site):
    for page in ("deploy/docs/protocol", "deploy/docs/sessions", "coordinator/ARCHITECTURE"):
        drawn = (site / f"{page}.html").read_text().count("<svg id=")
        assert drawn == (ROOT / f"{page}.md").read_text().count("```mermaid") > 0


def test_every_setting_is_in_the_table(site):
    page = (site / "deploy/docs/settings.html").read_text()
    for name in SETTINGS:
        assert f">{name}<" in page


def test_the_address_of_the_site_leads_to_its_first_page(site):
    (target,) = re.findall(r'href="([^"]+)"', (site / "index.html").read_text())
    assert "Failures" in (site / target).read_text()


def test_progress_is_brought_along_as_the_document_says():
    (program,) = [block.text for block in blocks(DOCS / "migrating.md", "python")]
    with Process() as node:
        here = program.replace("127.0.0.1:7400", node.address)
        exec(here, {})
        with GroupAdmin(node.address) as admin:
            (topic,) = {offset.topic for offset in admin.offsets("billing")}
            assert topic == "orders"
            assert admin.offsets("billing")[TopicPartition("orders", 1)] == 4712
        with pytest.raises(AssertionError, match="orders"):
            exec(here, {})  # Existing files are not overwritten.


@pytest.mark.parametrize(
    "name",
    [
        *(
            f"coordinator.{exported}"
            for exported in "client client.worker operator sources spark testing".split()
        ),
        "timer",
    ],
)
def test_every_public_name_is_in_the_reference(site, name):
    described = inventory(site)
    public = {f"{name}.{exported}" for exported in importlib.import_module(name).__all__}
    if name == "coordinator.client.worker":  # A part of its names is its parent's too.
        public -= {
            f"{name}.{exported}"
            for exported in importlib.import_module("coordinator.client").__all__
        }
    assert public - described == set()


def test_a_method_is_in_the_reference_with_its_docstring(site):
    page = (site / "deploy/docs/reference/client.html").read_text()
    described = inventory(site)
    assert "coordinator.client.BlockingMember.commit" in described
    assert "Commit offsets; returns when they are durable." in page
    assert "<strong>expected</strong> – offsets that must be the ones stored now; -1: none." in page
    # A colon in the docstring of a property parts no type from a description.
    assert "The group’s generation, as known to the member; -1: none, or a session group." in page


def inventory(site: Path) -> set[str]:
    """Names that Sphinx lists in `objects.inv`: four lines of text, then compressed ones."""
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    return {line.split()[0] for line in zlib.decompress(packed).decode().splitlines()}


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("A line.\n\n    code", "A line.\n\n::\n\n    code"),
        ("A.\n\n    one\n\n    two\n\nB.", "A.\n\n::\n\n    one\n\n    two\n\nB."),
        ("A line.\n\nArgs:\n    x: text.", "A line.\n\nArgs:\n    x: text."),
    ],
)
def test_indented_blocks_of_docstrings_are_code(docstring, expected):
    blocks = extension("site_reference").with_literal_blocks(docstring.split("\n"))
    assert "\n".join(blocks) == expected


def test_tables_of_docstrings_are_tables():
    table = ["| a | b |", "|---|---|", "| `x` | y |"]
    rows = ["   * - a", "     - b", "   * - `x`", "     - y"]
    converted = extension("site_reference").with_tables(["A line.", "", *table, "", "More."])
    head = [".. list-table::", "   :header-rows: 1", ""]
    assert converted == ["A line.", "", *head, *rows, "", "More."]


def extension(name: str):
    """An extension of the site, which is on nobody's path but Sphinx's."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("[a](../b.md#c)", "[a](../b.md#c)"),
        ("[a](code.py) [b](b.md)", "a [b](b.md)"),
        ("[`a`](code.py#L1)", "`a`"),
        ("[a](folder/)", "a"),
        ("[a](#here)", "[a](#here)"),
        ("[a](https://example.org)", "[a](https://example.org)"),
        ("![a](b.svg)", "![a](b.svg)"),
        ("```\n[a](code.py)\n```\n[a](code.py)", "```\n[a](code.py)\n```\na"),
    ],
)
def test_links_to_what_is_no_page_leave_their_words(text, left):
    assert extension("site_links").without_dead_ends(text) == left
