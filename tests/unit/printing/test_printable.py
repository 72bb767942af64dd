"""Text from outside, as it is shown."""

import json
from dataclasses import dataclass

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from coordinator.cli.formats import as_json
from coordinator.cli.output import Output, complain, rendered
from coordinator.observe.rows import column
from coordinator.printable import LENGTH_MAX, printable, printable_lines

ANY = st.text(st.characters(exclude_categories=()), max_size=400)
"""Halves of surrogates among them."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders-1 é 日本 😀", "orders-1 é 日本 😀"),
        ("[red]x[/] <b>&\"'\\", "[red]x[/] <b>&\"'\\"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\nb\r\tc\0", "a\\nb\\r\\tc\\x00"),
        ("\x7f\x85\x9b31m", "\\x7f\\x85\\x9b31m"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u200b\u2028\u2066\ufeff\xa0", "\\u200b\\u2028\\u2066\\ufeff\\xa0"),
        ("\ud800", "\\ud800"),
        ("\U000e0041\U0010ffff", "\\U000e0041\\U0010ffff"),
        ("\u3164\ufe0f\u115f", "\\u3164\\ufe0f\\u115f"),
        ("", ""),
    ],
)
def test_what_acts_or_is_not_seen_is_shown_by_its_number(text, shown):
    assert printable(text) == shown


@given(ANY)
def test_what_is_printable_is_so_on_one_line_and_stays_as_it_is(text):
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) <= LENGTH_MAX
    assert printable(shown) == shown
    assert printable(text, None) == "".join(printable(char) for char in text)
    shown.encode()  # No halves of surrogates.


def test_of_a_long_id_both_ends_are_shown():
    shown = printable("client-" + "x" * 1_000_000 + "\n-the-end")
    assert len(shown) == LENGTH_MAX
    assert shown.startswith("client-x")
    assert shown.endswith("\\n-the-end")
    assert "…" in shown


def test_lines_that_are_meant_stay():
    assert printable_lines("a\x1b\nb\r\n") == "a\\x1b\nb\\r\n"


@dataclass
class Row:
    group: str = column("Its id.")
    state: str = column("Its state.", default="Empty")


@given(
    st.lists(
        st.fixed_dictionaries({"group": st.text(max_size=40), "state": st.just("Empty")}),
        min_size=1,
        max_size=3,
    )
)
def test_programs_read_what_it_was(rows):
    output = Output(Row, [Row(**row) for row in rows])
    for name, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        written = rendered(output, name)
        assert read(written) == rows
        assert all(char.isprintable() or char == "\n" for char in written)
    assert len(rendered(output, "table").split("\n")) == len(rows) + 1


HARM = "a\x1b]0;b\x07\n\x9b\u202e\x7f"


def test_a_table_has_a_line_a_row_whatever_is_in_it():
    lines = rendered(Output(Row, [Row(HARM)]), "table").split("\n")
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)


def test_what_a_command_complains_of_is_a_line(capsys):
    complain(ValueError(HARM))
    said = capsys.readouterr().err
    assert said.endswith("\n")
    assert said[:-1].isprintable()


def test_json_has_no_delete():
    assert as_json("\x7f") == '"\\u007f"'
