"""Followers of a shard: long polls, who is in sync, and what acks=all waits for.

Source: Kafka `ReplicaManager`, `DelayedFetch`, `Partition`, on a log that the store has anyway.
"""

from __future__ import annotations

import pytest

from coordinator.core.values.errors import ErrorCode
from coordinator.shard.effects import Stop
from coordinator.shard.followers import ANYBODY, AckPolicy, FollowersChanged, Tail, TailEntry
from tests.kit.hosted_shard import LEADER, HostedShard

LAG_MS = 10_000
ALL = AckPolicy(node=LEADER, all_in_sync=True, lag_time_max_ms=LAG_MS)


# --- Long polls ---------------------------------------------------------------------------------


def test_a_fetch_at_the_end_waits_for_the_next_entry():
    host = HostedShard()
    call = host.fetch(2, 0)
    assert call not in host.answers
    host.commit(7)
    assert call not in host.answers, "what the store has not taken is nobody's business"
    host.store()
    answer = host.answers[call]
    assert [(e.sequence, e.base_offset, len(e.records)) for e in answer.entries] == [(1, 0, 1)]
    assert answer.end_offset == 1


def test_a_fetch_behind_the_end_is_answered_at_once():
    host = HostedShard()
    for offset in (1, 2, 3):
        host.commit(offset)
        host.store()
    assert [e.sequence for e in host.answers[host.fetch(2, 1)].entries] == [2, 3]


def test_a_fetch_waits_for_the_bytes_it_asks_for_but_not_longer_than_it_says():
    host = HostedShard()
    host.commit(1)
    host.store()
    call = host.fetch(2, 0, min_bytes=10_000, max_wait_ms=300)
    host.pass_time(299)
    assert call not in host.answers
    host.pass_time(1)
    assert [e.sequence for e in host.answers[call].entries] == [1]
    call = host.fetch(2, 1, max_wait_ms=300)
    host.pass_time(300)
    assert host.answers[call].entries == ()


def test_who_is_further_behind_than_the_tail_reads_the_store():
    tail = Tail(max_bytes=10)
    tail.start_at(5)
    assert tail.has(5)
    assert not tail.has(4)
    for sequence in (1, 2, 3):
        tail.add(TailEntry(sequence, 4 + sequence, (b"12345",)))
    assert [tail.has(offset) for offset in (5, 6, 7, 8, 9)] == [False, True, True, True, False]
    assert tail.bytes_from(7) == 5
    host = HostedShard()
    host.commit(1)
    host.store()
    host.shard.followers.tail = tail
    assert host.answers[host.fetch(2, 0)].is_gone


def test_a_shard_that_cannot_be_followed_keeps_no_records_and_sends_readers_to_the_store():
    host = HostedShard(tail_bytes=0)
    call = host.fetch(ANYBODY, 0)
    host.commit(1)
    host.store()
    assert host.answers[call].is_gone, "woken by the append, before its time is over"
    assert host.answers[call].end_offset == 1
    assert host.shard.followers.tail.entries_from(0) == ()
    at_end = host.fetch(ANYBODY, 1)
    assert at_end not in host.answers


def test_a_fetch_is_answered_when_the_shard_goes():
    host = HostedShard()
    call = host.fetch(2, 0)
    host.step(Stop(ErrorCode.NOT_COORDINATOR))
    assert host.answers[call].error is ErrorCode.NOT_COORDINATOR
    assert host.answers[host.fetch(2, 0)].error is ErrorCode.NOT_COORDINATOR


# --- In sync ------------------------------------------------------------------------------------


def test_a_follower_is_in_sync_once_it_has_everything_and_until_it_lags():
    host = HostedShard()
    host.commit(1)
    host.store()
    host.fetch(2, 0)
    assert host.in_sync == [], "it has nothing yet"
    host.fetch(2, 1)
    assert host.in_sync == [[1, 2]]
    host.pass_time(LAG_MS // 2)
    host.fetch(2, 1)
    host.pass_time(LAG_MS)
    assert host.in_sync == [[1, 2]]
    host.pass_time(LAG_MS)
    assert host.in_sync == [[1, 2], [1]]
    host.fetch(2, 1)
    assert host.in_sync[-1] == [1, 2], "it may come back"


def test_a_follower_that_keeps_up_with_a_busy_leader_is_in_sync_though_never_at_its_end():
    host = HostedShard()
    end = 0
    for _ in range(6):
        host.commit(end)
        host.store()
        end += 1
        host.fetch(2, end - 1, max_wait_ms=0)  # It has what there was when it last asked.
        host.pass_time(LAG_MS // 2)
    assert host.in_sync == [], "it never had all that was acknowledged"
    host.fetch(2, end, max_wait_ms=0)
    for _ in range(6):
        host.commit(end)
        host.store()
        end += 1
        host.pass_time(LAG_MS // 2)
        host.fetch(2, end - 1, max_wait_ms=0)
    assert host.in_sync == [[1, 2]]


def test_onlookers_are_never_in_sync():
    host = HostedShard()
    host.fetch(ANYBODY, 0)
    assert host.in_sync == []


# --- Who may follow ------------------------------------------------------------------------------


def test_nobody_is_in_sync_whom_the_cluster_has_dropped():
    host = HostedShard()
    host.fetch(2, 0, max_wait_ms=0)
    host.fetch(3, 0, max_wait_ms=0)
    assert host.in_sync[-1] == [1, 2, 3]
    host.step(FollowersChanged((3,)))
    assert host.in_sync[-1] == [1, 3]
    host.fetch(2, 0, max_wait_ms=0)
    assert host.in_sync[-1] == [1, 3], "it stood still, and has not joined again yet"
    host.step(FollowersChanged((2, 3)))
    assert host.in_sync[-1] == [1, 3], "what it said before it was dropped is not remembered"
    host.fetch(2, 0, max_wait_ms=0)
    assert host.in_sync[-1] == [1, 2, 3]


# --- acks=all -----------------------------------------------------------------------------------


def test_with_acks_store_nobody_waits_for_followers():
    host = HostedShard()
    host.fetch(2, 0)
    call = host.commit(1)
    host.store()
    assert host.error(call) == "NONE"


def test_with_acks_all_a_write_is_done_when_those_in_sync_have_it():
    host = HostedShard(ALL)
    host.fetch(2, 0, max_wait_ms=0)
    call = host.commit(1)
    host.store()
    assert host.error(call) is None
    later = host.commit(2)
    host.store()
    host.fetch(2, 1, max_wait_ms=0)
    assert host.error(call) == "NONE"
    assert host.error(later) is None
    host.fetch(2, 2, max_wait_ms=0)
    assert host.error(later) == "NONE"


def test_with_acks_all_a_follower_that_falls_silent_is_waited_for_no_longer_than_the_lag():
    host = HostedShard(ALL)
    host.fetch(2, 0)
    call = host.commit(1)
    host.store()
    assert host.error(call) is None
    host.pass_time(2 * LAG_MS)
    assert host.in_sync[-1] == [1]
    # The commit's own time was over before that: nobody knew, but it is not lost.
    assert host.error(call) == "COORDINATOR_NOT_AVAILABLE"
    assert [offset.offset for offset in host.answers[host.committed()].offsets] == [1]


@pytest.mark.parametrize("others", [(), (3,)], ids=["it was the only one", "another keeps up"])
def test_with_acks_all_a_follower_that_the_cluster_has_dropped_is_not_waited_for(others):
    host = HostedShard(ALL)
    for follower in (2, *others):
        host.fetch(follower, 0, max_wait_ms=0)
    call = host.commit(1)
    host.store()
    for other in others:
        host.fetch(other, 1, max_wait_ms=0)
    assert host.error(call) is None
    host.step(FollowersChanged(others))
    assert host.error(call) == "NONE", "at once: no time has passed"
    assert host.now_ms == 0


def test_with_acks_all_one_that_comes_back_is_waited_for_again_once_it_has_everything():
    host = HostedShard(ALL)
    host.fetch(2, 0, max_wait_ms=0)
    host.step(FollowersChanged(()))
    host.commit(1)
    host.store()
    host.step(FollowersChanged((2,)))
    host.fetch(2, 0, max_wait_ms=0)
    call = host.commit(2)
    host.store()
    assert host.error(call) == "NONE", "it is behind: nobody waits for it"
    host.fetch(2, 2, max_wait_ms=0)
    call = host.commit(3)
    host.store()
    assert host.error(call) is None
    host.fetch(2, 3, max_wait_ms=0)
    assert host.error(call) == "NONE"


def test_too_few_are_left_when_the_cluster_drops_one():
    host = HostedShard(
        AckPolicy(node=LEADER, all_in_sync=True, min_in_sync=2, lag_time_max_ms=LAG_MS)
    )
    host.fetch(2, 0, max_wait_ms=0)
    stored = host.commit(1)
    host.store()
    host.step(FollowersChanged(()))
    assert host.error(stored) == "COORDINATOR_NOT_AVAILABLE"
    assert [offset.offset for offset in host.answers[host.committed()].offsets] == [1]
    assert host.error(host.commit(2)) == "COORDINATOR_NOT_AVAILABLE"


def test_too_few_in_sync_refuse_a_write_before_it_is_written():
    host = HostedShard(
        AckPolicy(node=LEADER, all_in_sync=True, min_in_sync=2, lag_time_max_ms=LAG_MS)
    )
    call = host.commit(1)
    assert host.error(call) == "COORDINATOR_NOT_AVAILABLE"
    assert host.append is None
    host.fetch(2, 0, max_wait_ms=0)
    call = host.commit(2)
    assert host.append is not None
    host.store()
    host.fetch(2, 1, max_wait_ms=0)
    assert host.error(call) == "NONE"


def test_too_few_in_sync_after_the_write_are_told_but_it_is_stored():
    policy = AckPolicy(node=LEADER, all_in_sync=True, min_in_sync=2, lag_time_max_ms=1_000)
    host = HostedShard(policy)
    host.fetch(2, 0, max_wait_ms=0)
    call = host.commit(1)
    host.store()
    host.pass_time(2_000)
    assert host.error(call) == "COORDINATOR_NOT_AVAILABLE"
    assert [offset.offset for offset in host.answers[host.committed()].offsets] == [1]


@pytest.mark.parametrize("acks", [AckPolicy(node=LEADER), ALL])
def test_what_waits_is_answered_when_the_shard_goes(acks):
    host = HostedShard(acks)
    host.fetch(2, 0, max_wait_ms=0)
    stored = host.commit(1)
    host.store()
    under_way = host.commit(2)
    queued = host.commit(3)
    host.step(Stop(ErrorCode.NOT_COORDINATOR))
    assert host.error(under_way) == host.error(queued) == "NOT_COORDINATOR"
    assert host.error(stored) == ("NONE" if acks is not ALL else "NOT_COORDINATOR")
