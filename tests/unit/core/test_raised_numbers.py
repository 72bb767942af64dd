"""A store that lost commits: no number of them is issued again, and everybody is told."""

from __future__ import annotations

from coordinator.core.values.plan_journal import PlanRecord, TriggerCause
from coordinator.core.values.records import NumbersRaised, TokenFloor
from coordinator.runtime import codec
from tests.kit.session_scenario import SessionScenario, g2

RAISED = 100_000


def raised(scenario: SessionScenario) -> NumbersRaised:
    """The record that the new owner has written."""
    return next(record for record in scenario.records if isinstance(record, NumbersRaised))


def restart_raised(scenario: SessionScenario) -> None:
    """Read the log again, of a store that says that it has lost commits."""
    scenario.restart(raised=RAISED)


def test_tokens_of_lost_grants_are_not_issued_again():
    scenario, a, b = g2()
    lost = max(token for *_, token in (*a.held, *b.held))
    restart_raised(scenario)
    assert raised(scenario).token >= lost + (1 << 32) + RAISED
    a.attach()
    c = scenario.member("w-c", {"t": 3})
    c.attach()
    scenario.to(scenario.now + 60_000)
    assert c.held
    assert all(token > raised(scenario).token for *_, token in c.held)


def test_the_record_is_the_first_that_the_owner_writes():
    scenario, *_ = g2()
    before = len(scenario.records)
    restart_raised(scenario)
    assert isinstance(scenario.records[before], NumbersRaised)


def test_nothing_is_granted_until_the_longest_lease_is_over():
    scenario, a, b = g2()
    now = scenario.now
    restart_raised(scenario)
    a.attach()
    c = scenario.member("w-c", {"t": 3})
    c.attach()
    scenario.to(now + 9_000)
    assert not c.held, "holders that the store has lost may act"
    scenario.to(now + 60_000)
    assert c.held
    assert not b.stream


def test_the_journal_says_that_the_store_went_back():
    scenario, a, b = g2()
    restart_raised(scenario)
    for member in (a, b):
        member.attach()
    c = scenario.member("w-c", {"t": 3})
    c.attach()
    scenario.to(scenario.now + 60_000)
    plans = [record for record in scenario.records if isinstance(record, PlanRecord)]
    causes = {trigger.cause for plan in plans for trigger in plan.triggers}
    assert TriggerCause.STORE_WENT_BACK in causes


def test_a_snapshot_keeps_what_was_raised():
    scenario, *_ = g2()
    restart_raised(scenario)
    kept = [
        stored
        for stored in scenario.shard.records()
        if isinstance(stored, NumbersRaised | TokenFloor)
    ]
    assert max(record.token for record in kept) >= raised(scenario).token
    assert max(getattr(stored, "generation", 0) for stored in kept) == raised(scenario).generation


def test_a_record_of_raised_numbers_is_read_as_it_was_written():
    record = NumbersRaised(7, 1 << 52)
    assert codec.decode(codec.encode(record)) == record
