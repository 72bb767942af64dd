"""Charts: SVG that parses, with titles that follow the numbers, the same bytes each time."""

from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("pyspark", reason="the flights need the extra `demo`")

from flights.delays.charts import draw
from flights.delays.tables import read_flights, read_tables
from flights.delays.truth import compute_directly

pytestmark = pytest.mark.integration  # Drawing takes seconds.

SMALL_ENOUGH = 60_000  # Bytes.


@pytest.fixture(scope="module")
def tables():
    flights = read_flights()
    return compute_directly(flights[flights["month"] == 1], read_tables())


@pytest.fixture(scope="module")
def drawn(tables, tmp_path_factory):
    folder = tmp_path_factory.mktemp("charts")
    return draw(tables, folder), folder


def texts(path):
    return [element.text or "" for element in ET.parse(path).iter() if "text" in element.tag]


def test_each_chart_is_small_svg_with_its_title(drawn):
    titles, folder = drawn
    assert len(titles) == 4
    for name, title in titles.items():
        path = folder / f"{name}.svg"
        assert ET.parse(path).getroot().tag.endswith("svg")
        assert title in texts(path)
        assert path.stat().st_size < SMALL_ENOUGH


def test_titles_say_what_the_numbers_say(drawn, tables, tmp_path):
    before, _ = drawn
    turned = {
        name: table.assign(late_share=1 - table["late_share"]) for name, table in tables.items()
    }
    after = draw(turned, tmp_path)
    assert all(before[name] != after[name] for name in before)
    busiest = tables["carrier"].nlargest(1, "flights").iloc[0]
    late = tables["carrier"].assign(late_share=0.1)
    late.loc[late["carrier"] == busiest["carrier"], "late_share"] = 0.99
    title = draw({**tables, "carrier": late}, tmp_path)["by_carrier"]
    assert title.startswith(f"{busiest['carrier_name']} leaves late most often (99 %)")
