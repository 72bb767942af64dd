"""A pytest plugin: the fixture `virtual_coordinator`.

Ask for it on the command line, `-p coordinator.testing.plugin`, or in a conftest with
`pytest_plugins = ["coordinator.testing.plugin"]`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.testing.virtual import VirtualCoordinator


@pytest.fixture
def virtual_coordinator() -> Callable[..., VirtualCoordinator]:
    """Factory of coordinators: `virtual_coordinator(group_initial_rebalance_delay_ms=0)`."""
    return VirtualCoordinator
