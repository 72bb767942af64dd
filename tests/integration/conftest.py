"""What tests of several folders need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.campaigns.faults.stores import Postgres, missing_postgres


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A server for the tests of a module."""
    if reason := missing_postgres():
        pytest.skip(reason)
    with Postgres() as server:
        yield server
