"""Scenarios are played over both transports, but for what Kafka's cannot say: `unsayable.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit import classic_scenario
from tests.protocol.classic.over_kafka import KafkaCoordinator, Unsayable
from tests.protocol.classic.unsayable import UNSAYABLE

KAFKA = "kafka"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("transport", ["grpc", KAFKA], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is None or callspec.params.get("transport") != KAFKA:
            continue
        if reason := UNSAYABLE.get(getattr(item, "originalname", "")):
            item.add_marker(pytest.mark.xfail(raises=Unsayable, strict=True, reason=reason))


@pytest.fixture(autouse=True)
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The transport of this test's scenarios."""
    made: list[KafkaCoordinator] = []

    def make(**settings: Any) -> KafkaCoordinator:
        made.append(KafkaCoordinator(**settings))
        return made[-1]

    if request.param == KAFKA:
        monkeypatch.setattr(classic_scenario, "COORDINATOR", make)
    yield request.param
    for coordinator in made:
        coordinator.close()
