"""Expiration of offsets, on virtual time."""

from __future__ import annotations

from collections import Counter

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.expiration import expire_offsets
from coordinator.core.values.events import ExpirationHeld, GroupRemoved, OffsetsExpired
from coordinator.core.values.records import OffsetCommitted
from tests.kit.classic_scenario import GROUP, ClassicScenario
from tests.kit.steps import a_step

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


def test_nothing_expires_in_the_first_hour_after_a_load():
    s = ClassicScenario()
    assert s.commit_codes({("t", 0): 5}, member_id="", generation=-1) == ["NONE"]
    s.advance(7 * DAY_MS - MINUTE_MS)
    s.restart()
    s.advance(HOUR_MS - MINUTE_MS)
    assert s.fetch().response.topics, "an operator can stop the node, and mend its clock"
    s.advance(HOUR_MS)
    assert s.c.state(GROUP) is None


def test_what_would_expire_is_told_until_it_does():
    group = ClassicGroup("g", {}, Counter(), 0)
    group.apply(OffsetCommitted("g", "t", 0, 5, committed_at_ms=0))
    messages = []
    for now_ms in (8 * DAY_MS, 8 * DAY_MS + HOUR_MS - 1, 8 * DAY_MS + HOUR_MS):
        step = a_step(now_ms)
        expire_offsets([group], step, loaded_at_ms=8 * DAY_MS)
        messages.append((tuple(step.out.events), bool(step.out.writes)))
    held = ExpirationHeld("g", 1, 1, 8 * DAY_MS + HOUR_MS)
    assert messages[0] == messages[1] == ((held,), False)
    assert messages[2] == ((GroupRemoved("g"), OffsetsExpired("g", 1)), True)


def test_a_retention_of_less_than_an_hour_is_held_for_no_longer():
    s = ClassicScenario(offsets_retention_minutes=2, offsets_retention_check_interval_ms=1_000)
    assert s.commit_codes({("t", 0): 5}, member_id="", generation=-1) == ["NONE"]
    s.advance(MINUTE_MS)
    s.restart()
    s.advance(2 * MINUTE_MS + 2_000)
    assert s.c.state(GROUP) is None
