"""The pages' pictures are drawn, and shown."""

from xml.etree import ElementTree as ET

import pytest

from tests.kit.documents import ROOT
from tests.tools.pictures import DRAWN, terminal

RUNS = ROOT / "deploy/workers.svg", ROOT / "deploy/owners.svg"


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.name)
def test_a_picture_is_drawn(path):
    assert ET.fromstring(DRAWN[path]()).tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_readers_see_the_runs_on_the_first_page(path):
    assert f"]({path.relative_to(ROOT)})" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.name)
def test_readers_see_what_the_commands_say_on_the_page_of_operation(path):
    assert f"]({path.name})" in (path.parent / "README.md").read_text()


def test_a_terminal_wraps_lines_and_escapes_text():
    root = ET.fromstring(terminal("say <x>", ["a & b", "word " * 40]))
    lines = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert lines[:2] == ["$ say <x>", "a & b"]
    assert len(lines) == 2 + 3
