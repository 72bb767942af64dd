"""Worlds of session groups: clocks that drift and stand still, lost messages, nodes that die.

A small part of what `poe sim --sessions --seeds A-B` plays: half a minute on two cores.
"""

from __future__ import annotations

import pytest

from tests.simulation.worlds.campaign import Findings, play_many
from tests.simulation.worlds.played import collect, told
from tests.simulation.worlds.world import World

SEEDS = range(40)

HAS_RUN = {
    # Mechanisms of session groups, and the least number of times that each has to run.
    "LeaseExpired": 20,
    "PhaseOverdue": 20,
    "SessionAck": 50,
    "StreamEnded": 100,
    "session commit accepted": 1_000,
    "session commit refused: StaleMember": 10,
    "session owner heard Revoking": 30,
    "session owner heard Granted": 100,
    "session owner heard Lost": 10,
    "session owner heard Resumed": 20,
    "session owner heard Suspended": 20,
    "session owner heard Warming": 10,
    "fault: stream reset": 10,
    "fault: member killed": 10,
    "fault: member paused": 10,
    "fault: node killed": 10,
}


@pytest.fixture(scope="module")
def found() -> Findings:
    return collect(play_many(SEEDS, has_sessions=True))


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_every_claim_holds(found):
    assert not found.problems, told(found)


@pytest.mark.integration
@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", HAS_RUN)
def test_it_has_run(found, what):
    assert found.counts[what] >= HAS_RUN[what]


def test_a_world_of_sessions_is_the_same_each_time():
    runs = [World(1, is_told=True, has_sessions=True).run() for _ in range(2)]
    assert runs[0].lines == runs[1].lines
    assert not runs[0].problems
    assert runs[0].counts["session commit accepted"] > 10
