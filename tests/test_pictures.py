"""The picture of `coordinator explain` says what the command says today."""

from xml.etree import ElementTree as ET

from tests.pictures import EXPLAIN, draw_explain, terminal


def test_the_picture_is_up_to_date():
    assert EXPLAIN.read_text() == draw_explain(), "make it again: poe pictures"


def test_a_terminal_wraps_lines_and_escapes_text():
    root = ET.fromstring(terminal("say <x>", ["a & b", "word " * 40]))
    lines = [it.text for it in root.iter("{http://www.w3.org/2000/svg}text")]
    assert lines[:2] == ["$ say <x>", "a & b"]
    assert len(lines) == 2 + 3
