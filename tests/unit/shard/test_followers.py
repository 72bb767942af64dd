"""Followers of a shard: long polls, who is in sync, and what acks=all waits for.

Source: Kafka `ReplicaManager`, `DelayedFetch`, `Partition`, on a log that the store has anyway.
"""

from __future__ import annotations

import pytest

from coordinator.core.values.errors import ErrorCode
from coordinator.shard.effects import Stop
from coordinator.shard.followers import ANYBODY, AckPolicy, FollowersChanged, Tail, TailEntry
from tests.unit.shard.desk import LEADER, Desk

LAG_MS = 10_000
ALL = AckPolicy(node=LEADER, all_in_sync=True, lag_time_max_ms=LAG_MS)


# --- Long polls ---------------------------------------------------------------------------------


def test_a_fetch_at_the_end_waits_for_the_next_entry():
    desk = Desk()
    call = desk.fetch(2, 0)
    assert call not in desk.answers
    desk.commit(7)
    assert call not in desk.answers, "what the store has not taken is nobody's business"
    desk.store()
    answer = desk.answers[call]
    assert [(e.sequence, e.base_offset, len(e.records)) for e in answer.entries] == [(1, 0, 1)]
    assert answer.end_offset == 1


def test_a_fetch_behind_the_end_is_answered_at_once():
    desk = Desk()
    for offset in (1, 2, 3):
        desk.commit(offset)
        desk.store()
    assert [e.sequence for e in desk.answers[desk.fetch(2, 1)].entries] == [2, 3]


def test_a_fetch_waits_for_the_bytes_it_asks_for_but_not_longer_than_it_says():
    desk = Desk()
    desk.commit(1)
    desk.store()
    call = desk.fetch(2, 0, min_bytes=10_000, max_wait_ms=300)
    desk.pass_time(299)
    assert call not in desk.answers
    desk.pass_time(1)
    assert [e.sequence for e in desk.answers[call].entries] == [1]
    call = desk.fetch(2, 1, max_wait_ms=300)
    desk.pass_time(300)
    assert desk.answers[call].entries == ()


def test_who_is_further_behind_than_the_tail_reads_the_store():
    tail = Tail(max_bytes=10)
    tail.start_at(5)
    assert tail.has(5)
    assert not tail.has(4)
    for sequence in (1, 2, 3):
        tail.add(TailEntry(sequence, 4 + sequence, (b"12345",)))
    assert [tail.has(offset) for offset in (5, 6, 7, 8, 9)] == [False, True, True, True, False]
    assert tail.bytes_from(7) == 5
    desk = Desk()
    desk.commit(1)
    desk.store()
    desk.shard.followers.tail = tail
    assert desk.answers[desk.fetch(2, 0)].is_gone


def test_a_shard_that_cannot_be_followed_keeps_no_records_and_sends_readers_to_the_store():
    desk = Desk(tail_bytes=0)
    call = desk.fetch(ANYBODY, 0)
    desk.commit(1)
    desk.store()
    assert desk.answers[call].is_gone, "woken by the append, before its time is over"
    assert desk.answers[call].end_offset == 1
    assert desk.shard.followers.tail.entries_from(0) == ()
    at_end = desk.fetch(ANYBODY, 1)
    assert at_end not in desk.answers


def test_a_fetch_is_answered_when_the_shard_goes():
    desk = Desk()
    call = desk.fetch(2, 0)
    desk.step(Stop(ErrorCode.NOT_COORDINATOR))
    assert desk.answers[call].error is ErrorCode.NOT_COORDINATOR
    assert desk.answers[desk.fetch(2, 0)].error is ErrorCode.NOT_COORDINATOR


# --- In sync ------------------------------------------------------------------------------------


def test_a_follower_is_in_sync_once_it_has_everything_and_until_it_lags():
    desk = Desk()
    desk.commit(1)
    desk.store()
    desk.fetch(2, 0)
    assert desk.in_sync == [], "it has nothing yet"
    desk.fetch(2, 1)
    assert desk.in_sync == [[1, 2]]
    desk.pass_time(LAG_MS // 2)
    desk.fetch(2, 1)
    desk.pass_time(LAG_MS)
    assert desk.in_sync == [[1, 2]]
    desk.pass_time(LAG_MS)
    assert desk.in_sync == [[1, 2], [1]]
    desk.fetch(2, 1)
    assert desk.in_sync[-1] == [1, 2], "it may come back"


def test_a_follower_that_keeps_up_with_a_busy_leader_is_in_sync_though_never_at_its_end():
    desk = Desk()
    end = 0
    for _ in range(6):
        desk.commit(end)
        desk.store()
        end += 1
        desk.fetch(2, end - 1, max_wait_ms=0)  # It has what there was when it last asked.
        desk.pass_time(LAG_MS // 2)
    assert desk.in_sync == [], "it never had all that was acknowledged"
    desk.fetch(2, end, max_wait_ms=0)
    for _ in range(6):
        desk.commit(end)
        desk.store()
        end += 1
        desk.pass_time(LAG_MS // 2)
        desk.fetch(2, end - 1, max_wait_ms=0)
    assert desk.in_sync == [[1, 2]]


def test_onlookers_are_never_in_sync():
    desk = Desk()
    desk.fetch(ANYBODY, 0)
    assert desk.in_sync == []


# --- Who may follow ------------------------------------------------------------------------------


def test_nobody_is_in_sync_whom_the_cluster_has_dropped():
    desk = Desk()
    desk.fetch(2, 0, max_wait_ms=0)
    desk.fetch(3, 0, max_wait_ms=0)
    assert desk.in_sync[-1] == [1, 2, 3]
    desk.step(FollowersChanged((3,)))
    assert desk.in_sync[-1] == [1, 3]
    desk.fetch(2, 0, max_wait_ms=0)
    assert desk.in_sync[-1] == [1, 3], "it stood still, and has not joined again yet"
    desk.step(FollowersChanged((2, 3)))
    assert desk.in_sync[-1] == [1, 3], "what it said before it was dropped is not remembered"
    desk.fetch(2, 0, max_wait_ms=0)
    assert desk.in_sync[-1] == [1, 2, 3]


# --- acks=all -----------------------------------------------------------------------------------


def test_with_acks_store_nobody_waits_for_followers():
    desk = Desk()
    desk.fetch(2, 0)
    call = desk.commit(1)
    desk.store()
    assert desk.error(call) == "NONE"


def test_with_acks_all_a_write_is_done_when_those_in_sync_have_it():
    desk = Desk(ALL)
    desk.fetch(2, 0, max_wait_ms=0)
    call = desk.commit(1)
    desk.store()
    assert desk.error(call) is None
    later = desk.commit(2)
    desk.store()
    desk.fetch(2, 1, max_wait_ms=0)
    assert desk.error(call) == "NONE"
    assert desk.error(later) is None
    desk.fetch(2, 2, max_wait_ms=0)
    assert desk.error(later) == "NONE"


def test_with_acks_all_a_follower_that_falls_silent_is_waited_for_no_longer_than_the_lag():
    desk = Desk(ALL)
    desk.fetch(2, 0)
    call = desk.commit(1)
    desk.store()
    assert desk.error(call) is None
    desk.pass_time(2 * LAG_MS)
    assert desk.in_sync[-1] == [1]
    # The commit's own time was over before that: nobody knew, but it is not lost.
    assert desk.error(call) == "COORDINATOR_NOT_AVAILABLE"
    assert [found.offset for found in desk.answers[desk.committed()].offsets] == [1]


@pytest.mark.parametrize("others", [(), (3,)], ids=["it was the only one", "another keeps up"])
def test_with_acks_all_a_follower_that_the_cluster_has_dropped_is_not_waited_for(others):
    desk = Desk(ALL)
    for follower in (2, *others):
        desk.fetch(follower, 0, max_wait_ms=0)
    call = desk.commit(1)
    desk.store()
    for other in others:
        desk.fetch(other, 1, max_wait_ms=0)
    assert desk.error(call) is None
    desk.step(FollowersChanged(others))
    assert desk.error(call) == "NONE", "at once: no time has passed"
    assert desk.now_ms == 0


def test_with_acks_all_one_that_comes_back_is_waited_for_again_once_it_has_everything():
    desk = Desk(ALL)
    desk.fetch(2, 0, max_wait_ms=0)
    desk.step(FollowersChanged(()))
    desk.commit(1)
    desk.store()
    desk.step(FollowersChanged((2,)))
    desk.fetch(2, 0, max_wait_ms=0)
    call = desk.commit(2)
    desk.store()
    assert desk.error(call) == "NONE", "it is behind: nobody waits for it"
    desk.fetch(2, 2, max_wait_ms=0)
    call = desk.commit(3)
    desk.store()
    assert desk.error(call) is None
    desk.fetch(2, 3, max_wait_ms=0)
    assert desk.error(call) == "NONE"


def test_too_few_are_left_when_the_cluster_drops_one():
    desk = Desk(AckPolicy(node=LEADER, all_in_sync=True, min_in_sync=2, lag_time_max_ms=LAG_MS))
    desk.fetch(2, 0, max_wait_ms=0)
    stored = desk.commit(1)
    desk.store()
    desk.step(FollowersChanged(()))
    assert desk.error(stored) == "COORDINATOR_NOT_AVAILABLE"
    assert [found.offset for found in desk.answers[desk.committed()].offsets] == [1]
    assert desk.error(desk.commit(2)) == "COORDINATOR_NOT_AVAILABLE"


def test_too_few_in_sync_refuse_a_write_before_it_is_written():
    desk = Desk(AckPolicy(node=LEADER, all_in_sync=True, min_in_sync=2, lag_time_max_ms=LAG_MS))
    call = desk.commit(1)
    assert desk.error(call) == "COORDINATOR_NOT_AVAILABLE"
    assert desk.append is None
    desk.fetch(2, 0, max_wait_ms=0)
    call = desk.commit(2)
    assert desk.append is not None
    desk.store()
    desk.fetch(2, 1, max_wait_ms=0)
    assert desk.error(call) == "NONE"


def test_too_few_in_sync_after_the_write_are_told_but_it_is_stored():
    policy = AckPolicy(node=LEADER, all_in_sync=True, min_in_sync=2, lag_time_max_ms=1_000)
    desk = Desk(policy)
    desk.fetch(2, 0, max_wait_ms=0)
    call = desk.commit(1)
    desk.store()
    desk.pass_time(2_000)
    assert desk.error(call) == "COORDINATOR_NOT_AVAILABLE"
    assert [found.offset for found in desk.answers[desk.committed()].offsets] == [1]


@pytest.mark.parametrize("acks", [AckPolicy(node=LEADER), ALL])
def test_what_waits_is_answered_when_the_shard_goes(acks):
    desk = Desk(acks)
    desk.fetch(2, 0, max_wait_ms=0)
    stored = desk.commit(1)
    desk.store()
    under_way = desk.commit(2)
    queued = desk.commit(3)
    desk.step(Stop(ErrorCode.NOT_COORDINATOR))
    assert desk.error(under_way) == desk.error(queued) == "NOT_COORDINATOR"
    assert desk.error(stored) == ("NONE" if acks is not ALL else "NOT_COORDINATOR")
