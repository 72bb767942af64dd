"""Owners of a member: what a commit counts for that shows no holdings, and what a poll gives back.

Commits of tasks, at a coordinator: tests/unit/client/test_late_commits.py.
"""

from __future__ import annotations

import threading

import pytest

from coordinator.assignors import TopicPartition
from coordinator.client.errors import StaleMember
from coordinator.client.member.events import Granted, Revoking
from coordinator.client.member.face import Member
from coordinator.client.member.ledger import MEMBERSHIP, Holding, Ledger
from coordinator.client.member.owners import Owners

P = TopicPartition("t", 0)


def hand_out(ledger: Ledger) -> Holding:
    """A holding that begins now, and was told."""
    holding = Holding(P)
    ledger.end((P,), "it was lost")
    ledger.begin((holding,))
    ledger.hand_out((holding,))
    return holding


def polled(owners: Owners) -> None:
    owners.poll_ends(owners.poll_begins())


def in_another_thread(act) -> list[BaseException]:
    """Errors of a function in a thread of its own."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except StaleMember as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return errors


def test_a_thread_that_does_not_poll_is_to_show_its_holdings():
    ledger = Ledger()
    owners = Owners(ledger)
    holding = hand_out(ledger)
    polled(owners)
    assert owners.handed_out() == {P: holding}
    (error,) = in_another_thread(owners.handed_out)
    assert "handed out to this thread: pass holdings=" in str(error)


def test_the_thread_that_polled_last_is_the_owner():
    ledger = Ledger()
    owners = Owners(ledger)
    hand_out(ledger)
    polled(owners)
    assert not in_another_thread(lambda: (polled(owners), owners.handed_out()))


def test_a_planned_batch_counts_for_what_the_owner_was_told():
    ledger = Ledger()
    first = hand_out(ledger)
    assert ledger.of_planned_batch({P: 5}) == [first]
    ledger.end((P,), "it was lost")
    ledger.begin((Holding(P),))
    assert ledger.of_planned_batch({P: 5}) == []


def test_a_membership_that_was_lost_and_begun_anew_between_two_polls_is_handed_out():
    ledger = Ledger()
    for _ in range(2):
        ledger.begin((Holding(MEMBERSHIP), Holding(P)))
        ledger.hand_out(ledger.current((P,)))
        ledger.check(ledger.claim((), None))
        assert ledger.known((MEMBERSHIP,))
        ledger.end_all("the session has ended")


@pytest.mark.virtual_time
@pytest.mark.parametrize("protocol", ["classic", "session"])
async def test_a_poll_gives_nothing_back_that_is_to_be_released(virtual_group, protocol):
    group = virtual_group()
    first_holds: list[bool] = []

    async def first() -> None:
        more = {"give_back": "released"}
        async with Member("anywhere:1", "g", {"t": 2}, protocol=protocol, **more) as member:
            async for event in member.events():
                if isinstance(event, Revoking):
                    break
            for _ in range(3):
                await member.poll(timeout=0.1)
                first_holds.append(all(map(member.holds, event.holdings)))
            member.released(event.holdings)
            first_holds.append(any(map(member.holds, event.holdings)))
            await member.poll(timeout=None)

    async def second() -> None:
        async with Member("anywhere:1", "g", {"t": 2}, protocol=protocol) as member:
            async for event in member.events():
                if isinstance(event, Granted):
                    taken.append(event)

    taken: list[Granted] = []
    group.start(first)
    await group.advance(60)
    group.start(second)
    await group.until(lambda: taken)
    assert first_holds == [True, True, True, False]
