"""A store that lost commits: no number of them is issued again, and everybody is told."""

from __future__ import annotations

from coordinator.core.values.plan_journal import PlanRecord, TriggerCause
from coordinator.core.values.records import NumbersRaised, TokenFloor
from coordinator.runtime import codec
from tests.unit.core.sessions.kit import World, g2

RAISED = 100_000


def raised(world: World) -> NumbersRaised:
    """The record that the new owner has written."""
    return next(record for record in world.records if isinstance(record, NumbersRaised))


def restart_raised(world: World) -> None:
    """Read the log again, of a store that says that it has lost commits."""
    world.restart(raised=RAISED)


def test_tokens_of_lost_grants_are_not_issued_again():
    world, a, b = g2()
    lost = max(token for *_, token in (*a.held, *b.held))
    restart_raised(world)
    assert raised(world).token >= lost + (1 << 32) + RAISED
    a.attach()
    c = world.member("w-c", {"t": 3})
    c.attach()
    world.to(world.now + 60_000)
    assert c.held
    assert all(token > raised(world).token for *_, token in c.held)


def test_the_record_is_the_first_that_the_owner_writes():
    world, *_ = g2()
    before = len(world.records)
    restart_raised(world)
    assert isinstance(world.records[before], NumbersRaised)


def test_nothing_is_granted_until_the_longest_lease_is_over():
    world, a, b = g2()
    now = world.now
    restart_raised(world)
    a.attach()
    c = world.member("w-c", {"t": 3})
    c.attach()
    world.to(now + 9_000)
    assert not c.held, "holders that the store has lost may act"
    world.to(now + 60_000)
    assert c.held
    assert not b.stream


def test_the_journal_says_that_the_store_went_back():
    world, a, b = g2()
    restart_raised(world)
    for member in (a, b):
        member.attach()
    c = world.member("w-c", {"t": 3})
    c.attach()
    world.to(world.now + 60_000)
    plans = [record for record in world.records if isinstance(record, PlanRecord)]
    causes = {trigger.cause for plan in plans for trigger in plan.triggers}
    assert TriggerCause.STORE_WENT_BACK in causes


def test_a_snapshot_keeps_what_was_raised():
    world, *_ = g2()
    restart_raised(world)
    kept = [it for it in world.shard.records() if isinstance(it, NumbersRaised | TokenFloor)]
    assert max(record.token for record in kept) >= raised(world).token
    assert max(getattr(it, "generation", 0) for it in kept) == raised(world).generation


def test_a_record_of_raised_numbers_is_read_as_it_was_written():
    record = NumbersRaised(7, 1 << 52)
    assert codec.decode(codec.encode(record)) == record
