"""A log that is slow for good: nobody waits for it longer than is promised."""

from __future__ import annotations

from coordinator.shard.followers import AckPolicy
from tests.kit.hosted_shard import LEADER, HostedShard


def test_commits_that_keep_coming_do_not_keep_a_compare_and_set_waiting():
    host = HostedShard()
    host.commit(1)
    compared = host.commit(500, expected=1)
    for offset in range(2, 12):
        host.commit(offset)
        host.store_one()  # The next entry has another commit of the partition.
        host.pass_time(500)
    assert host.error(compared) == "NOT_COORDINATOR"


def test_what_the_store_has_is_not_taken_back_when_the_next_append_cannot_reach_it():
    host = HostedShard(AckPolicy(node=LEADER, all_in_sync=True))
    host.fetch(2, 0, max_wait_ms=0)  # In sync, and then silent.
    first = host.commit(1)
    host.store()
    assert host.error(first) is None, "a follower lacks it"
    host.now_ms += 100
    second = host.commit(2)
    until_answered(host, first)
    assert host.error(first) == "COORDINATOR_NOT_AVAILABLE"
    assert ("t", 0) in host.shard.machine.groups["g"].pending_offsets, "the second is on its way"
    until_answered(host, second)
    (stored,) = host.answers[host.committed()].offsets
    assert stored.offset == 1
    assert host.shard.machine.groups["g"].pending_offsets == {}
    host.fetch(2, 1, max_wait_ms=0)
    third = host.commit(3)
    host.store()
    host.fetch(2, 2, max_wait_ms=0)
    assert host.error(third) == "NONE"


def until_answered(host: HostedShard, call: int) -> None:
    """Time passes, and the log cannot be reached."""
    while host.error(call) is None:
        if host.append is not None:
            host.refuse_one()
        host.pass_time(10)
