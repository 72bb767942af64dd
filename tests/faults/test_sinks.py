"""SIGKILL at random: rows are in each kind of table once.

`python -m tests.faults.sinks KIND` kills a hundred times.
"""

from __future__ import annotations

import pytest

from tests.faults.sinks import campaign
from tests.sinks_kit import KINDS


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_readers_see_each_row_once(kind, tmp_path):
    verdict = campaign(kind, 3, in_s3=kind == "delta", seed=1, folder=tmp_path)
    assert verdict.is_exact
    assert verdict.rows > 0
