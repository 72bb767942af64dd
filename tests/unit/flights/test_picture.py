"""The picture says who worked on what, and the table how long partitions stood idle."""

from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("matplotlib", reason="pictures need the extra `demo`")
pytest.importorskip("pyspark", reason="the flights need the extra `demo`")

from flights.history import SIGKILL, Strike, history_of
from flights.notes import WORKS, Note
from flights.picture import draw, lengths
from flights.upgrade import idle_table

LINES = [(0, "a", 0), (9, "a", 0), (0, "a", 1), (20, "a", 1), (14, "b & c", 0), (30, "b & c", 0)]


@pytest.fixture
def histories():
    notes = [Note(float(at_s), who, WORKS, partition) for at_s, who, partition in LINES]
    notes.sort(key=lambda note: note.at_s)
    killed = history_of(notes, [Strike("a", 10.0, SIGKILL)])
    return {"one": killed, "other": history_of(notes, [])}


def test_bars_carry_names_and_steps_are_told(histories, tmp_path):
    draw(tmp_path / "it.svg", "Title", histories, [(5.0, "it begins"), (10.0, "a is killed")])
    texts = [element.text for element in ET.parse(tmp_path / "it.svg").iter() if element.text]
    for text in ("Title", "one, by partition", "other, by partition", "a", "b & c", SIGKILL):
        assert text in texts, text
    sentences = " ".join(texts)
    assert "1: at 5 s it begins" in sentences
    assert "2: at 10 s a is killed" in sentences


def test_the_same_history_gives_the_same_bytes(histories, tmp_path):
    for name in ("a", "b"):
        draw(tmp_path / name, "Title", histories, [])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_rests_are_told_for_each_kind_of_hand_over_and_group(histories):
    assert lengths(histories["one"].idle_spans) == "1 partition: 4.0 to 4.0"
    head, joined, killed, frozen = (line.split("  ") for line in idle_table(histories))
    cells = [[cell.strip() for cell in row if cell.strip()] for row in (joined, killed, frozen)]
    assert [cell.strip() for cell in head if cell.strip()] == ["one", "other"]
    assert cells == [
        ["a version joins, or is shut down", "none", "1 partition: 5.0 to 5.0"],
        ["a version is killed", "1 partition: 4.0 to 4.0", "none"],
        ["a version is frozen", "none", "none"],
    ]
