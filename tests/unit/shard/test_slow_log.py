"""A log that is slow for good: nobody waits for it longer than is promised."""

from __future__ import annotations

from coordinator.shard.followers import AckPolicy
from tests.unit.shard.desk import LEADER, Desk


def test_commits_that_keep_coming_do_not_keep_a_compare_and_set_waiting():
    desk = Desk()
    desk.commit(1)
    compared = desk.commit(500, expected=1)
    for offset in range(2, 12):
        desk.commit(offset)
        desk.store_one()  # The next entry has another commit of the partition.
        desk.pass_time(500)
    assert desk.error(compared) == "NOT_COORDINATOR"


def test_what_the_store_has_is_not_taken_back_when_the_next_append_cannot_reach_it():
    desk = Desk(AckPolicy(node=LEADER, all_in_sync=True))
    desk.fetch(2, 0, max_wait_ms=0)  # In sync, and then silent.
    first = desk.commit(1)
    desk.store()
    assert desk.error(first) is None, "a follower lacks it"
    desk.now_ms += 100
    second = desk.commit(2)
    until_answered(desk, first)
    assert desk.error(first) == "COORDINATOR_NOT_AVAILABLE"
    assert ("t", 0) in desk.shard.machine.groups["g"].pending_offsets, "the second is on its way"
    until_answered(desk, second)
    (stored,) = desk.answers[desk.committed()].offsets
    assert stored.offset == 1
    assert desk.shard.machine.groups["g"].pending_offsets == {}
    desk.fetch(2, 1, max_wait_ms=0)
    third = desk.commit(3)
    desk.store()
    desk.fetch(2, 2, max_wait_ms=0)
    assert desk.error(third) == "NONE"


def until_answered(desk: Desk, call: int) -> None:
    """Time passes, and the log cannot be reached."""
    while desk.error(call) is None:
        if desk.append is not None:
            desk.refuse_one()
        desk.pass_time(10)
