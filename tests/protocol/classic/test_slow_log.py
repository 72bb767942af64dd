"""A log that cannot be reached for a moment, or is slow: rulings R25 and R29."""

import pytest

from tests.kit.classic_scenario import ClassicScenario, code, partition_codes

TIMEOUT = 5_000
T0, T1 = ("t", 0), ("t", 1)


@pytest.fixture
def s() -> ClassicScenario:
    return ClassicScenario()


def until_done(s: ClassicScenario, call) -> int:
    """Milliseconds until the call is answered."""
    began = s.c.now_ms
    while not call.done:
        s.advance(1)
    return s.c.now_ms - began


def unreachable(s: ClassicScenario, appends: int = 1_000) -> None:
    for _ in range(appends):
        s.c.fail_next_append("unavailable")


# --- R25 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("failures", "after_ms"), [(1, 50), (2, 150), (4, 750), (6, 1750)])
def test_an_append_is_tried_again_after_a_back_off(s, failures, after_ms):
    unreachable(s, failures)
    call = s.commit({T0: 2})
    assert until_done(s, call) == after_ms
    assert partition_codes(call.response) == ["NONE"]
    assert s.c.stored().sequence == 1, "it was written once, under its number"


def test_an_assignment_that_is_tried_again_causes_no_rebalance(s):
    a = s.join()
    s.advance(50)
    a = a.response.member_id
    unreachable(s, 3)
    call = s.sync(a, 1, {a: b"a0"})
    assert (call.done, s.state) == (False, "CompletingRebalance")
    until_done(s, call)
    assert (call.response.assignment, s.state, s.generation) == (b"a0", "Stable", 1)


def test_a_log_that_stays_away_ends_in_the_time_out(s):
    s.commit({T0: 1})
    unreachable(s)
    call = s.commit({T0: 2})
    assert until_done(s, call) == TIMEOUT
    assert partition_codes(call.response) == ["COORDINATOR_NOT_AVAILABLE"]
    assert s.fetch(T0, require_stable=True).done, "it is certainly not in the log"
    s.c.log.forget_failures()
    s.advance(TIMEOUT)
    assert s.stored(T0) == {T0: 1}, "what was taken back is not written later"
    assert s.commit_codes({T0: 3}) == ["NONE"]


def test_an_assignment_that_cannot_be_stored_in_time_rebalances(s):
    a = s.join(srt=20_000, rt=20_000)
    s.advance(50)
    a = a.response.member_id
    unreachable(s)
    call = s.sync(a, 1, {a: b"a0"})
    assert until_done(s, call) == TIMEOUT
    assert code(call.response) == "COORDINATOR_NOT_AVAILABLE"
    assert s.state == "PreparingRebalance"
    s.restart()
    assert s.state != "Stable"


def test_a_group_made_for_a_commit_that_was_given_up_is_gone(s):
    unreachable(s)
    s.commit({T0: 2})
    s.advance(TIMEOUT)
    assert s.state is None


def test_writes_that_come_meanwhile_make_one_entry_with_it(s):
    unreachable(s, 2)
    first = s.commit({T0: 1})
    s.advance(20)
    second, third = s.commit({T1: 2}), s.commit({T0: 3})
    until_done(s, first)
    assert second.done
    assert third.done
    assert s.c.stored().sequence == 1
    assert s.stored() == {T0: 3, T1: 2}


def test_each_write_is_tried_for_its_own_time_out(s):
    unreachable(s)
    first = s.commit({T0: 1})
    s.advance(3_000)
    second = s.commit({T1: 2})
    s.advance(2_000)
    assert partition_codes(first.response) == ["COORDINATOR_NOT_AVAILABLE"]
    assert not second.done
    s.c.log.forget_failures()
    s.advance(500)
    assert partition_codes(second.response) == ["NONE"]
    assert s.stored() == {T1: 2}


@pytest.mark.parametrize("kind", ["full", "too_large"])
def test_what_waiting_does_not_change_is_refused_at_once(s, kind):
    s.c.fail_next_append(kind)
    assert s.commit({T0: 1}).done


def test_a_fence_after_an_unavailable_answers_everybody(s):
    s.c.fail_next_append("unavailable")
    s.c.fail_next_append("fenced")
    commit, racing = s.commit({T0: 1}), s.commit({T0: 2}, expected={T0: 1})
    stable = s.fetch(T0, require_stable=True)
    s.advance(50)
    assert partition_codes(commit.response) == ["NOT_COORDINATOR"]
    assert partition_codes(racing.response) == ["NOT_COORDINATOR"]
    assert code(stable.response) == "NOT_COORDINATOR", "from here on somebody else knows better"
    assert not s.c.is_loaded
    s.advance(TIMEOUT)  # The back-off of a shard that was given up has no effect.


def test_an_ambiguous_attempt_is_not_taken_back(s):
    s.c.fail_next_append("unavailable")
    s.c.fail_next_append("ambiguous")
    call = s.commit({T0: 1})
    s.advance(50)
    assert partition_codes(call.response) == ["NONE"]


def test_a_snapshot_between_two_attempts_holds_what_is_durable(s):
    s.commit({T0: 1})
    unreachable(s, 1)
    call = s.commit({T0: 2})
    s.c.take_snapshot()
    assert s.stored(T0) == {T0: 1}
    until_done(s, call)
    s.restart()
    assert s.stored(T0) == {T0: 2}


def test_a_restart_between_two_attempts_forgets_the_write(s):
    unreachable(s, 1)
    s.commit({T0: 2})
    s.restart()
    s.advance(TIMEOUT)
    assert s.stored(T0) == {T0: -1}


def test_entries_too_large_together_go_one_by_one_when_the_log_is_back(s):
    s.c.hold_appends()
    s.commit({T0: 0})
    calls = [s.commit({("t", n): n}) for n in (1, 2)]
    for kind in ("unavailable", "too_large", "unavailable"):
        s.c.fail_next_append(kind)
    s.c.release_appends()
    s.advance(1_000)
    assert [partition_codes(call.response) for call in calls] == [["NONE"], ["NONE"]]
    assert s.c.stored().sequence == 3


def test_a_generation_whose_promise_is_given_up_is_handed_to_nobody(s):
    """Two groups, so that the promise of one may be taken back before its join is asked again."""
    calls = [s.join(srt=20_000, rt=20_000), s.join(group="h", srt=20_000, rt=20_000)]
    unreachable(s)
    s.advance(50)
    for call in calls:
        until_done(s, call)
        assert code(call.response) == "COORDINATOR_NOT_AVAILABLE"


# --- R29 ------------------------------------------------------------------------------------------


def waiting(s: ClassicScenario):
    return [
        s.fetch(T0, require_stable=True),
        s.fetch(require_stable=True),
        s.commit({T0: 7}, expected={T0: 1}),
    ]


def error(call) -> str:
    response = call.response
    if hasattr(response, "error_code"):
        return code(response)
    return partition_codes(response)[0]


def test_who_waits_for_a_write_waits_no_longer_than_its_time_out(s):
    s.commit({T0: 1})
    s.c.hold_appends()
    slow = s.commit({T0: 2})
    s.advance(3_000)
    calls = waiting(s)
    s.advance(1_999)
    assert not any(call.done for call in calls)
    s.advance(1)
    assert partition_codes(slow.response) == ["COORDINATOR_NOT_AVAILABLE"]
    assert [error(call) for call in calls] == ["NOT_COORDINATOR"] * 3
    assert [error(call) for call in waiting(s)] == ["NOT_COORDINATOR"] * 3, "its time is over"
    s.c.release_appends()
    assert s.stored(T0) == {T0: 2}, "a commit may land late; a compare-and-set that gave up may not"


def test_a_stable_fetch_waits_for_the_last_of_the_commits_of_its_partitions(s):
    s.c.hold_appends()
    s.commit({T0: 2})
    s.advance(3_000)
    s.commit({("t", 1): 2})
    stable = s.fetch(T0, ("t", 1), require_stable=True)
    assert until_done(s, stable) == TIMEOUT
    assert error(stable) == "NOT_COORDINATOR"


def test_who_waits_for_a_write_that_is_refused_goes_on(s):
    s.commit({T0: 1})
    s.c.hold_appends()
    s.commit({T0: 2})
    stable, _, compared = waiting(s)
    s.c.fail_next_append("too_large")
    s.c.release_appends()
    assert stable.response.topics[0].partitions[0].committed_offset == 1
    assert partition_codes(compared.response) == ["NONE"]
    assert s.stored(T0) == {T0: 7}


def test_compare_and_sets_are_compared_in_their_order(s):
    s.commit({T0: 1})
    s.c.hold_appends()
    s.commit({T0: 2})
    calls = [s.commit({T0: n}, expected={T0: n - 1}) for n in (3, 4, 5)]
    late = s.commit({T0: 9}, expected={T0: 2})
    s.c.release_appends()
    assert [partition_codes(call.response) for call in calls] == [["NONE"]] * 3
    assert partition_codes(late.response) == ["OFFSET_MISMATCH"]
    assert s.stored(T0) == {T0: 5}


def test_a_stable_fetch_does_not_wait_for_what_came_after_it(s):
    s.c.hold_appends()
    s.commit({T0: 1})
    stable = s.fetch(T0, require_stable=True)
    s.commit({T0: 2})
    s.c.release_appends()
    assert stable.response.topics[0].partitions[0].committed_offset == 1


def test_a_client_that_goes_away_while_it_waits_commits_nothing(s):
    s.c.hold_appends()
    s.commit({T0: 1})
    s.commit({T0: 2}, expected={T0: 1}).cancel()
    s.c.release_appends()
    assert s.stored(T0) == {T0: 1}
