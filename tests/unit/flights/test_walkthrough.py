"""The walk-through shows code that is there, and charts that the data makes."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("pyspark", reason="the flights need the extra `demo`")

from flights.delays.charts import draw
from flights.delays.tables import read_flights, read_tables
from flights.delays.truth import compute_directly
from tests.kit.documents import blocks

FLIGHTS = Path(__file__).parents[3] / "deploy/spark/flights"


def lines(text):
    """Without indentation, comments and blank lines."""
    bare = (line.partition("  #")[0].strip() for line in text.splitlines())
    return "\n".join(line for line in bare if line)


def test_each_piece_of_code_is_in_a_file():
    files = [lines(path.read_text()) for path in FLIGHTS.rglob("*.py")]
    pieces = [block.text for block in blocks(FLIGHTS / "README.md", "python")]
    assert pieces
    for piece in pieces:
        assert any(lines(piece) in file for file in files), piece


@pytest.mark.integration  # It reads and draws the whole year.
def test_the_charts_shown_have_the_titles_that_the_data_gives_them(tmp_path):
    titles = draw(compute_directly(read_flights(), read_tables()), tmp_path)
    assert {path.stem for path in (FLIGHTS / "charts").iterdir()} == set(titles)
    for name, title in titles.items():
        shown = ET.parse(FLIGHTS / "charts" / f"{name}.svg").iter()
        assert title in [element.text for element in shown]
