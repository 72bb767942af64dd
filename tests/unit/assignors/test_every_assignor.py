"""Rules that all assignors keep: their tables of examples, and the order of their input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.assignors.base import Assignor, ClusterMetadata, Subscription
from coordinator.assignors.cooperative import CooperativeStickyAssignor
from coordinator.assignors.range import RangeAssignor
from coordinator.assignors.round_robin import RoundRobinAssignor
from coordinator.assignors.sticky import StickyAssignor

from . import test_cooperative, test_range, test_round_robin, test_sticky
from .laws import Assignment, Group, groups, shuffled

EXAMPLES = [
    (assignor, *example)
    for assignor, tested in (
        (RangeAssignor(), test_range),
        (RoundRobinAssignor(), test_round_robin),
        (StickyAssignor(), test_sticky),
        (CooperativeStickyAssignor(), test_cooperative),
    )
    for example in tested.TABLE
]
ASSIGNORS = {type(assignor): assignor for assignor, *_ in EXAMPLES}


@pytest.mark.parametrize(("assignor", "partitions", "members", "expected"), EXAMPLES)
def test_examples(
    assignor: Assignor,
    partitions: dict[str, int],
    members: dict[str, Subscription],
    expected: Assignment,
) -> None:
    assignment = assignor.assign(ClusterMetadata(partitions), members)
    assert assignment == {member_id: list(tp) for member_id, tp in expected.items()}


@pytest.mark.parametrize(
    "assignor", ASSIGNORS.values(), ids=[one_assignor.__name__ for one_assignor in ASSIGNORS]
)
@given(group=groups(with_racks=True), seed=st.integers())
def test_order_of_input_changes_nothing(assignor: Assignor, group: Group, seed: int) -> None:
    assert assignor.assign(*group) == assignor.assign(*shuffled(*group, seed))
