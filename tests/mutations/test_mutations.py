"""Every rule that is to be broken is still where it is said to be: else nothing would be broken."""

from __future__ import annotations

import pytest

from tests.mutations.run import ROOT, mutations


@pytest.mark.parametrize("mutation", mutations(), ids=lambda mutation: mutation["rule"])
def test_what_is_to_be_broken_is_there_once(mutation):
    assert (ROOT / mutation["file"]).read_text().count(mutation["old"]) == 1
    assert mutation["new"] != mutation["old"]
    for suite in mutation.get("suites", ()):
        assert (ROOT / suite).exists()
