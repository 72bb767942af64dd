"""Every program of the demo can be imported: what it uses of the library is there."""

import importlib

import pytest

pytest.importorskip("pyspark", reason="the flights need the extra `demo`")

from tests.kit.documents import ROOT

FLIGHTS = ROOT / "deploy/spark/flights"
MODULES = [
    ".".join(path.relative_to(FLIGHTS.parent).with_suffix("").parts)
    for path in sorted(FLIGHTS.rglob("*.py"))
]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_of_the_demo_can_be_imported(module):
    importlib.import_module(module)
