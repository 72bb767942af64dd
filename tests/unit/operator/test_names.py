"""Names of the package: each is there, and costs nothing until it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from coordinator import operator

CODE = """
import sys
import coordinator.operator
early = {"grpc", "google.protobuf", "coordinator.client", "coordinator.v1"} & set(sys.modules)
assert not early, early
from coordinator.operator import TopicAdmin
assert not {"coordinator.operator.admin", "coordinator.operator.health"} & set(sys.modules)
"""


@pytest.mark.parametrize("name", operator.__all__)
def test_each_name_is_there(name):
    assert getattr(operator, name).__name__ == name


def test_another_name_is_not_there():
    with pytest.raises(AttributeError, match=r"'coordinator.operator' has no attribute 'Admin'"):
        operator.Admin  # noqa: B018


def test_a_name_loads_its_own_module_alone():
    subprocess.run([sys.executable, "-c", CODE], check=True)
