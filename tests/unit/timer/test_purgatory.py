"""The purgatory: watch lists by key, the second try, the purge."""

from __future__ import annotations

import pytest

from timer import DelayedOperation, Purgatory, Timer


class Operation(DelayedOperation):
    def __init__(self, on_try=None):
        super().__init__()
        self.may_complete = False
        self.on_try = on_try
        self.tries = 0
        self.ended = []

    def try_complete(self):
        self.tries += 1
        if self.on_try is not None:
            self.on_try(self)
        return self.force_complete() if self.may_complete else False

    def on_complete(self):
        self.ended.append("complete")

    def on_expiration(self):
        self.ended.append("expiration")


@pytest.fixture
def timer():
    return Timer(0)


@pytest.fixture
def purgatory(timer):
    return Purgatory(timer)


def watch(purgatory, *keys, deadline_ms=100_000):
    operation = Operation()
    assert purgatory.try_complete_else_watch(operation, keys, deadline_ms) is False
    return operation


# -- completing ------------------------------------------------------------------------


def test_176_a_check_completes_what_can_be_completed_and_only_once(purgatory):
    one, two = watch(purgatory, "k1"), watch(purgatory, "k2")
    assert purgatory.check_and_complete("k1") == 0
    one.may_complete = True
    assert purgatory.check_and_complete("k1") == 1
    assert purgatory.check_and_complete("k1") == 0
    two.may_complete = True
    assert purgatory.check_and_complete("k2") == 1
    assert purgatory.check_and_complete("k2") == 0
    assert (one.ended, two.ended) == (["complete"], ["complete"])


def test_an_operation_that_can_complete_at_once_is_neither_watched_nor_armed(timer, purgatory):
    operation = Operation()
    operation.may_complete = True
    assert purgatory.try_complete_else_watch(operation, ["k"], 10) is True
    assert (operation.tries, purgatory.watched, purgatory.delayed, len(timer)) == (1, 0, 0, 0)


def test_the_second_try_closes_the_window_for_a_missed_event(timer, purgatory):
    def event_between_the_tries(operation):
        # The event comes right after the first try, when nobody is watching yet.
        if operation.tries == 1:
            assert purgatory.check_and_complete("k") == 0
        else:
            operation.may_complete = True

    operation = Operation(event_between_the_tries)
    assert purgatory.try_complete_else_watch(operation, ["k"], 10) is True
    assert operation.tries == 2
    assert (purgatory.delayed, len(timer)) == (0, 0)


def test_the_second_try_comes_when_the_operation_can_be_found_and_before_it_is_armed(purgatory):
    seen = []
    operation = Operation(lambda op: seen.append((purgatory.watched, op.is_pending)))
    purgatory.try_complete_else_watch(operation, ["a", "b"], 10)
    assert seen == [(0, False), (2, False)]
    assert operation.is_pending


def test_watching_stops_when_the_operation_completes_meanwhile(timer, purgatory):
    operation = Operation()

    class Keys(list):
        def __iter__(self):
            yield "a"
            operation.force_complete()
            yield "b"

    assert purgatory.try_complete_else_watch(operation, Keys("ab"), 10) is False
    assert (purgatory.watched, purgatory.delayed, len(timer)) == (1, 0, 0)


def test_an_operation_completed_before_is_not_watched(purgatory):
    operation = Operation()
    operation.force_complete()
    assert purgatory.try_complete_else_watch(operation, ["k"], 10) is False
    assert (purgatory.watched, purgatory.delayed) == (0, 0)


def test_an_operation_without_a_key_is_refused(purgatory):
    operation = Operation()
    with pytest.raises(ValueError, match="at least one key"):
        purgatory.try_complete_else_watch(operation, [], 10)
    assert operation.tries == 0


def test_an_operation_expires_once_its_time_is_out(timer, purgatory):
    operation = watch(purgatory, "k", deadline_ms=10)
    timer.advance_to(9)
    assert (operation.ended, purgatory.delayed) == ([], 1)
    timer.advance_to(10)
    assert (operation.ended, purgatory.delayed) == (["complete", "expiration"], 0)
    assert purgatory.check_and_complete("k") == 0
    assert purgatory.watched == 0


def test_an_operation_whose_time_is_out_already_expires_at_the_next_advance(timer, purgatory):
    timer.advance_to(50)
    operation = watch(purgatory, "k", deadline_ms=20)
    assert operation.ended == []
    timer.advance_to(50)
    assert operation.ended == ["complete", "expiration"]


def test_a_watched_operation_may_be_rearmed(timer, purgatory):
    operation = watch(purgatory, "k", deadline_ms=10)
    timer.rearm(operation, 20)
    timer.advance_to(19)
    assert (operation.ended, purgatory.delayed, purgatory.watched) == ([], 1, 1)
    timer.advance_to(20)
    assert operation.ended == ["complete", "expiration"]


def test_a_check_counts_only_what_it_completed_itself(purgatory):
    first = watch(purgatory, "k")
    second = watch(purgatory, "k")
    first.on_try = lambda _: second.force_complete()
    first.may_complete = second.may_complete = True
    assert purgatory.check_and_complete("k") == 1
    assert second.tries == 2  # Gone, so not asked again.
    assert purgatory.watched == 0


def test_on_complete_may_check_and_watch_under_the_same_key(purgatory):
    added = []

    class Chained(Operation):
        def on_complete(self):
            super().on_complete()
            assert purgatory.check_and_complete("k") == 1
            added.append(watch(purgatory, "k"))

    chained = Chained()
    purgatory.try_complete_else_watch(chained, ["k"], 10)
    other = watch(purgatory, "k")
    chained.may_complete = other.may_complete = True
    assert purgatory.check_and_complete("k") == 1
    assert (chained.ended, other.ended, added[0].ended) == (["complete"], ["complete"], [])
    assert (purgatory.watched, purgatory.delayed) == (1, 1)
    assert purgatory.cancel_for_key("k") == added


def test_a_check_asks_only_those_that_were_watched_when_it_began(purgatory):
    added = []

    class Relay(Operation):
        def on_complete(self):
            added.append(watch(purgatory, "k"))
            added[0].may_complete = True

    relay = Relay()
    purgatory.try_complete_else_watch(relay, ["k"], 10)
    relay.may_complete = True
    assert purgatory.check_and_complete("k") == 1
    assert (added[0].is_completed, purgatory.watched) == (False, 1)
    assert purgatory.check_and_complete("k") == 1


def test_a_try_that_raises_leaves_the_lists_consistent(purgatory):
    def explode(_):
        raise OSError("boom")

    finished, bad = watch(purgatory, "k"), watch(purgatory, "k")
    finished.may_complete = True
    bad.on_try = explode
    with pytest.raises(OSError, match="boom"):
        purgatory.check_and_complete("k")
    bad.on_try = None
    assert purgatory.check_and_complete("k") == 0
    assert (purgatory.watched, purgatory.delayed) == (1, 1)


# -- counting --------------------------------------------------------------------------


def test_178_operations_watched_under_many_keys_linger_until_touched(purgatory):
    watch(purgatory, "a")
    two, three = watch(purgatory, "a", "b"), watch(purgatory, "a", "b", "c")
    assert (purgatory.delayed, purgatory.watched) == (3, 6)
    two.may_complete = three.may_complete = True
    two.try_complete()
    three.try_complete()
    assert (purgatory.delayed, purgatory.watched) == (1, 6)
    assert purgatory.check_and_complete("a") == 0
    assert purgatory.watched == 4
    assert purgatory.check_and_complete("b") == 0
    assert purgatory.watched == 2
    assert purgatory.check_and_complete("c") == 0
    assert purgatory.watched == 1


def test_empty_lists_are_dropped(purgatory):
    operation = watch(purgatory, "a", "b")
    operation.force_complete()
    purgatory.check_and_complete("a")
    assert set(purgatory._watch_lists) == {"b"}
    purgatory.purge()
    assert purgatory._watch_lists == {}
    assert purgatory.check_and_complete("never watched") == 0
    assert purgatory._watch_lists == {}


def test_only_operations_of_this_purgatory_count_as_armed(timer, purgatory):
    other = Purgatory(timer)
    mine, theirs = watch(purgatory, "k"), watch(other, "k")
    timer.add(Operation(), 10)
    assert (purgatory.delayed, other.delayed, len(timer)) == (1, 1, 3)
    mine.force_complete()
    assert (purgatory.delayed, other.delayed, len(timer)) == (0, 1, 2)
    assert purgatory.try_complete_else_watch(theirs, ["k"], 10) is False
    assert (purgatory.delayed, other.delayed, len(timer)) == (1, 0, 2)


def test_watching_under_more_keys_arms_once(timer, purgatory):
    operation = watch(purgatory, "a")
    purgatory.try_complete_else_watch(operation, ["b"], 50)
    assert (purgatory.watched, purgatory.delayed, len(timer)) == (2, 1, 1)
    assert operation.deadline_ms == 50


# -- taking out ------------------------------------------------------------------------


def test_179_cancel_for_key_takes_out_without_completing(timer, purgatory):
    one, two = watch(purgatory, "k"), watch(purgatory, "k")
    watch(purgatory, "k2")
    assert purgatory.cancel_for_key("k") == [one, two]
    assert (purgatory.delayed, purgatory.watched, len(timer)) == (1, 1, 1)
    assert (one.ended, two.ended) == ([], [])
    assert purgatory.cancel_for_key("k") == []
    assert purgatory.cancel_for_key("unknown") == []


def test_what_was_cancelled_is_not_completed_through_another_key(purgatory):
    operation = watch(purgatory, "a", "b")
    assert purgatory.cancel_for_key("a") == [operation]
    operation.may_complete = True
    assert purgatory.check_and_complete("b") == 0
    assert (operation.ended, purgatory.watched) == ([], 0)
    assert operation.force_complete() is True  # Its owner may still end it.


def test_what_was_cancelled_may_be_watched_anew(purgatory):
    operation = watch(purgatory, "a")
    purgatory.cancel_for_key("a")
    assert purgatory.try_complete_else_watch(operation, ["b"], 10) is False
    assert (purgatory.watched, purgatory.delayed) == (1, 1)
    operation.may_complete = True
    assert purgatory.check_and_complete("b") == 1


def test_cancel_for_key_leaves_out_what_had_completed(purgatory):
    done, waiting = watch(purgatory, "a", "b"), watch(purgatory, "a")
    done.may_complete = True
    purgatory.check_and_complete("b")
    assert purgatory.cancel_for_key("a") == [waiting]
    assert purgatory.watched == 0


# -- purging ---------------------------------------------------------------------------


def test_the_purge_comes_when_estimate_less_armed_exceeds_the_interval(timer):
    purgatory = Purgatory(timer, purge_interval=3)
    done = [watch(purgatory, "a", "b") for _ in range(3)]
    for operation in done:
        operation.force_complete()
    watch(purgatory, "a")  # Estimate 4, armed 1: 3 does not exceed 3.
    assert (purgatory.watched, purgatory.purged_total) == (7, 0)
    watch(purgatory, "c").force_complete()  # Estimate 5, armed 1 afterwards.
    assert purgatory.purged_total == 0
    assert purgatory.check_and_complete("no such key") == 0
    assert purgatory.purged_total == 0  # An event nobody waits for costs nothing.
    watch(purgatory, "d")  # Estimate 6, armed 2: 4 exceeds 3.
    assert (purgatory.watched, purgatory.delayed, purgatory.purged_total) == (2, 2, 7)
    assert set(purgatory._watch_lists) == {"a", "d"}


def test_a_purge_resets_the_estimate_to_the_number_armed(timer):
    purgatory = Purgatory(timer, purge_interval=3)
    for _ in range(5):
        watch(purgatory, "kept")
    for _ in range(4):
        watch(purgatory, "x").force_complete()
    assert purgatory._estimated == 9
    watch(purgatory, "kept")
    assert purgatory.purged_total == 4
    assert purgatory._estimated == purgatory.delayed == 6


def test_a_check_starts_a_purge_too(timer):
    purgatory = Purgatory(timer, purge_interval=2)
    operations = [watch(purgatory, "a", "b") for _ in range(3)]
    for operation in operations:
        operation.may_complete = True
    assert purgatory.check_and_complete("a") == 3
    assert (purgatory.watched, purgatory.purged_total) == (0, 3)


def test_the_estimate_may_be_too_high_which_is_harmless(timer):
    purgatory = Purgatory(timer, purge_interval=2)
    for _ in range(3):
        watch(purgatory, "a").force_complete()
        purgatory.check_and_complete("a")  # Dropped by touching; the estimate does not know.
    assert (purgatory.watched, purgatory.purged_total, purgatory._estimated) == (0, 0, 0)


def test_the_estimate_rises_once_per_operation_and_only_for_watched_ones(purgatory):
    watch(purgatory, "a", "b", "c")
    at_once = Operation()
    at_once.may_complete = True
    purgatory.try_complete_else_watch(at_once, ["a"], 10)
    assert purgatory._estimated == 1


def test_lists_stay_bounded_under_load_that_times_out(timer):
    purgatory = Purgatory(timer, purge_interval=100)
    worst = 0
    for now_ms in range(2_000):
        timer.advance_to(now_ms)
        watch(purgatory, now_ms % 997, now_ms % 991, deadline_ms=now_ms + 20)
        worst = max(worst, purgatory.watched)
    assert worst <= 2 * (100 + 20 + 2)
    assert purgatory.purged_total > 0
