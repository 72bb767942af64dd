"""Watch lists under load: bounded as they grow, at a constant price for each operation."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from timer import DelayedOperation, Purgatory, Timer
from timer.purgatory import COMPACT_FROM

NEVER = 10**9  # A purge interval that no test reaches.


class Operation(DelayedOperation):
    def __init__(self):
        super().__init__()
        self.may_complete = False

    def try_complete(self):
        return self.force_complete() if self.may_complete else False

    def on_complete(self):
        pass


def watch(purgatory, *keys):
    operation = Operation()
    assert purgatory.try_complete_else_watch(operation, keys, 100_000) is False
    return operation


def lengths(purgatory):
    return {key: len(operations) for key, operations in purgatory._watch_lists.items()}


def test_a_list_of_finished_operations_is_compacted_when_it_reaches_the_first_mark():
    purgatory = Purgatory(Timer(0), purge_interval=NEVER)
    for _ in range(COMPACT_FROM - 1):
        watch(purgatory, "k").force_complete()
    assert purgatory.watched == COMPACT_FROM - 1
    waiting = watch(purgatory, "k")
    assert (purgatory.watched, purgatory.purged_total) == (1, 0)
    assert purgatory.find("k") is waiting


def test_a_list_is_compacted_when_it_has_doubled_since_the_last_time():
    purgatory = Purgatory(Timer(0), purge_interval=NEVER)
    for _ in range(COMPACT_FROM):
        watch(purgatory, "k")
    for _ in range(COMPACT_FROM - 1):
        watch(purgatory, "k").force_complete()
    assert lengths(purgatory) == {"k": 2 * COMPACT_FROM - 1}
    watch(purgatory, "k")
    assert lengths(purgatory) == {"k": COMPACT_FROM + 1}


def test_each_key_has_a_mark_of_its_own():
    purgatory = Purgatory(Timer(0), purge_interval=NEVER)
    for _ in range(COMPACT_FROM):
        watch(purgatory, "long")
    for _ in range(COMPACT_FROM):
        watch(purgatory, "long", "short").force_complete()
    # The last one came when both were full of finished ones, and went after that.
    assert lengths(purgatory) == {"long": COMPACT_FROM + 1, "short": 1}


def test_a_mark_goes_with_its_list():
    purgatory = Purgatory(Timer(0), purge_interval=NEVER)
    operations = [watch(purgatory, "a", "b", "c") for _ in range(3 * COMPACT_FROM)]
    assert set(purgatory._compact_at) == set("abc")
    assert purgatory.cancel_for_key("a") == operations
    assert purgatory.check_and_complete("b") == 0
    purgatory.purge()
    assert (purgatory._compact_at, lengths(purgatory), purgatory.watched) == ({}, {}, 0)


def test_a_list_that_shrinks_has_a_lower_mark():
    purgatory = Purgatory(Timer(0), purge_interval=NEVER)
    operations = [watch(purgatory, "k") for _ in range(100)]
    for operation in operations[20:]:
        operation.force_complete()
    purgatory.check_and_complete("k")
    assert purgatory._compact_at == {"k": 40}


def test_what_is_compacted_meanwhile_does_not_disturb_a_check():
    """An operation that completes may have so many watched that its own list is cleaned."""
    purgatory = Purgatory(Timer(0), purge_interval=NEVER)

    class Crowd(Operation):
        def on_complete(self):
            for _ in range(2 * COMPACT_FROM):
                watch(purgatory, "k").force_complete()

    crowd = Crowd()
    purgatory.try_complete_else_watch(crowd, ["k"], 10)
    last = watch(purgatory, "k")
    crowd.may_complete = last.may_complete = True
    assert purgatory.check_and_complete("k") == 2
    assert (lengths(purgatory), purgatory.watched) == ({}, 0)


def test_a_purge_that_is_due_passes_over_a_long_list_that_is_in_use_and_cleans_an_idle_one():
    purgatory = Purgatory(Timer(0), purge_interval=100)
    for _ in range(COMPACT_FROM):
        watch(purgatory, "long")
    operations = [watch(purgatory, "long") for _ in range(COMPACT_FROM - 1)]
    for operation in operations:
        operation.force_complete()

    def come_and_go(times):
        for _ in range(times):
            watch(purgatory, "short").force_complete()
            purgatory.check_and_complete("short")

    assert purgatory._estimated == 2 * COMPACT_FROM - 1
    come_and_go(101 - len(operations))  # A purge: the long list has grown since the last one.
    assert purgatory._estimated == purgatory.delayed == COMPACT_FROM
    assert lengths(purgatory) == {"long": 2 * COMPACT_FROM - 1}
    come_and_go(101)  # And another: it has not.
    assert lengths(purgatory) == {"long": COMPACT_FROM}
    assert purgatory.purged_total == len(operations)


def test_a_purge_that_is_asked_for_cleans_every_list():
    purgatory = Purgatory(Timer(0), purge_interval=NEVER)
    operations = [watch(purgatory, "k") for _ in range(2 * COMPACT_FROM)]
    for operation in operations[1:]:
        operation.force_complete()
    assert purgatory.purge() == 2 * COMPACT_FROM - 1
    assert lengths(purgatory) == {"k": 1}


def test_the_price_of_compaction_is_a_few_entries_for_each_one_watched():
    purgatory = Purgatory(Timer(0), purge_interval=NEVER)
    dice = random.Random(7)
    waiting, walked, watches = [], 0, 20_000
    for number in range(watches):
        length = lengths(purgatory).get("k", 0) + 1
        if length >= purgatory._compact_at.get("k", COMPACT_FROM):
            walked += length
        waiting.append(watch(purgatory, "k"))
        # The worst that can be done: as many go as come, at every size.
        if len(waiting) > 10 + number // 50:
            waiting.pop(dice.randrange(len(waiting))).force_complete()
    assert walked > watches  # It did walk ...
    assert walked <= 4 * watches  # ... and not often.


class WatchLists(RuleBasedStateMachine):
    """Waiting operations are found under each of their keys, and lists stay bounded."""

    operations = Bundle("operations")

    def __init__(self):
        super().__init__()
        self.purgatory = Purgatory(Timer(0), purge_interval=60)
        self.waiting = {}

    @rule(target=operations, keys=st.sets(st.sampled_from("abc"), min_size=1))
    def watch(self, keys):
        operation = watch(self.purgatory, *sorted(keys))
        self.waiting[operation] = keys
        return operation

    @rule(keys=st.sets(st.sampled_from("abcd"), min_size=1), count=st.integers(1, 40))
    def watch_and_finish_many(self, keys, count):
        for _ in range(count):
            watch(self.purgatory, *sorted(keys)).force_complete()

    @rule(keys=st.sets(st.sampled_from("abc"), min_size=1), count=st.integers(1, 40))
    def watch_many(self, keys, count):
        for _ in range(count):
            self.waiting[watch(self.purgatory, *sorted(keys))] = keys

    @rule(operation=consumes(operations))
    def finish(self, operation):
        operation.force_complete()
        self.waiting.pop(operation, None)

    @rule(operation=operations, key=st.sampled_from("abc"))
    def check(self, operation, key):
        operation.may_complete = True
        ripe = {o for o, keys in self.waiting.items() if o.may_complete and key in keys}
        assert self.purgatory.check_and_complete(key) == len(ripe)
        for done in ripe:
            del self.waiting[done]

    @rule(key=st.sampled_from("abc"))
    def cancel(self, key):
        expected = [operation for operation, keys in self.waiting.items() if key in keys]
        assert self.purgatory.cancel_for_key(key) == expected
        for operation in expected:
            del self.waiting[operation]

    @rule()
    def purge(self):
        self.purgatory.purge()
        assert self.purgatory.watched == sum(map(len, self.waiting.values()))

    @invariant()
    def who_waits_is_found_under_each_key_in_order(self):
        for key in "abcd":
            expected = [operation for operation, keys in self.waiting.items() if key in keys]
            watched = self.purgatory._watch_lists.get(key, [])
            assert [operation for operation in watched if not operation.gone] == expected

    @invariant()
    def counts_agree(self):
        assert self.purgatory.watched == sum(lengths(self.purgatory).values())
        assert self.purgatory.delayed == len(self.waiting)

    @invariant()
    def lists_are_shorter_than_their_marks(self):
        marks = self.purgatory._compact_at
        assert marks.keys() <= self.purgatory._watch_lists.keys()
        for key, length in lengths(self.purgatory).items():
            assert length < marks.get(key, COMPACT_FROM)


TestWatchLists = WatchLists.TestCase
TestWatchLists.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
