"""SIGKILL at random: rows are in a table once.

`python -m tests.campaigns.faults.sinks KIND` kills a hundred times, in each kind of table.
Here the two whose files are in the open: what is between two steps of the others is killed in
`tests/integration/rows/test_sinks.py`, at each step.
"""

from __future__ import annotations

import pytest

from tests.campaigns.faults.sinks import campaign


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_readers_see_each_row_once(kind, tmp_path):
    verdict = campaign(kind, 3, in_s3=kind == "delta", seed=1, folder=tmp_path)
    assert verdict.is_exact
    assert verdict.rows > 0
