"""Random histories of session groups: whatever happens, the invariants hold, and then all is well.

The actions are those of the model checker (`tests.simulation.model`), on longer paths than it can
walk: the fast tests play 12 histories, the slow tests 300, and `--hypothesis-profile=long` 20,000.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from tests.simulation.model.sessions import SessionSpace

FEW, MANY, LONG = 12, 300, 20_000


class Processes(RuleBasedStateMachine):
    """Some processes of one group; each step is one that is possible then."""

    @initialize(
        members=st.integers(1, 4),
        partitions=st.integers(1, 4),
        mode=st.sampled_from(["simple", "warm", "copy"]),
        faults=st.integers(0, 6),
        is_named=st.booleans(),
    )
    def begin(self, members, partitions, mode, faults, is_named):
        self.space = SessionSpace(
            members=members, partitions=partitions, mode=mode, faults=faults, is_named=is_named
        )
        self.space.is_checked = True

    @rule(choice=st.integers(0, 1_000))
    def act(self, choice):
        actions = list(self.space.actions())
        self.space.act(actions[choice % len(actions)])

    def teardown(self):
        if hasattr(self, "space"):
            self.space.heal()


def play(histories: int) -> None:
    """Play random histories, each of at most 40 steps."""
    found = settings(max_examples=histories, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(Processes, settings=found)


def test_processes():
    play(FEW)


@pytest.mark.integration
@pytest.mark.timeout(0)  # The long profile takes half an hour.
def test_processes_in_many_histories():
    play(LONG if settings.get_current_profile_name() == "long" else MANY)
