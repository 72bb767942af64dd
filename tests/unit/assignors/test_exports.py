"""Names of the package, of which some are loaded when they are asked for."""

from __future__ import annotations

import pytest

from coordinator import assignors
from coordinator.assignors.built_in import BUILT_IN


def test_every_exported_name_is_there_and_listed():
    assert all(getattr(assignors, name) is not None for name in assignors.__all__)
    assert set(assignors.__all__) <= set(dir(assignors))
    assert assignors.BUILT_IN is BUILT_IN


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'FairAssignor'"):
        _ = assignors.FairAssignor
