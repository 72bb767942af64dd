"""The timer against a sorted list, under everything Hypothesis can think of."""

from __future__ import annotations

from collections import Counter, defaultdict, deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from timer import Timer, TimerTask
from timer.bucket import NO_EXPIRATION_MS

# Relative times: mostly around the small wheels' turns, sometimes far, sometimes past.
DELAYS_MS = st.one_of(
    st.integers(-5, 70), st.integers(0, 5_000), st.sampled_from([10**6, 10**9, -(10**6)])
)
JUMPS_MS = st.one_of(
    st.sampled_from([0, 1, 2]), st.integers(0, 30), st.integers(0, 5_000), st.just(10**7)
)


class Task(TimerTask):
    """Runs, notes itself, and arms itself again `repeats` times, `period_ms` later each."""

    def __init__(self, timer, ran, name, repeats, period_ms):
        super().__init__()
        self.timer, self.ran, self.name = timer, ran, name
        self.repeats, self.period_ms = repeats, period_ms

    def run(self):
        self.ran.append(self)
        if self.repeats > 0:
            self.repeats -= 1
            self.timer.add(self, self.deadline_ms + self.period_ms)


class Entry:
    """A pending task in the model, due at tick `tick`.

    Tasks that were added with no advance in between went down the same levels, so
    within one tick they keep their order: that is what `moment` and `placement` tell.
    """

    def __init__(self, tick, deadline_ms, repeats, moment=None, placement=0):
        self.tick, self.deadline_ms, self.repeats = tick, deadline_ms, repeats
        self.moment, self.placement = moment, placement


class TimerMachine(RuleBasedStateMachine):
    tasks = Bundle("tasks")

    @initialize(
        tick_ms=st.sampled_from([1, 1, 3, 10]),
        wheel_size=st.sampled_from([2, 3, 8, 20, 512]),
        start_ms=st.integers(-100, 10_000),
    )
    def start(self, tick_ms, wheel_size, start_ms):
        self.timer = Timer(start_ms, tick_ms=tick_ms, wheel_size=wheel_size)
        self.tick_ms, self.wheel_size, self.now_ms = tick_ms, wheel_size, start_ms
        self.ran = []
        self.model = {}  # task -> Entry
        self.placements = 0
        self.advances = 0

    def place(self, task, deadline_ms, moment):
        now_tick = self.now_ms // self.tick_ms
        self.placements += 1
        self.model[task] = Entry(
            max(deadline_ms // self.tick_ms, now_tick),
            deadline_ms,
            task.repeats,
            moment,
            self.placements,
        )

    @rule(
        target=tasks,
        delay_ms=DELAYS_MS,
        repeats=st.sampled_from([0, 0, 0, 1, 4]),
        period_ms=st.integers(0, 40),
    )
    def add_new(self, delay_ms, repeats, period_ms):
        task = Task(self.timer, self.ran, self.placements, repeats, period_ms)
        self.add(task, delay_ms)
        return task

    @rule(task=tasks, delay_ms=DELAYS_MS)
    def add(self, task, delay_ms):
        deadline_ms = self.now_ms + delay_ms
        self.timer.add(task, deadline_ms)
        self.place(task, deadline_ms, moment=self.advances)

    @rule(task=tasks, delay_ms=DELAYS_MS)
    def rearm(self, task, delay_ms):
        deadline_ms = self.now_ms + delay_ms
        self.timer.rearm(task, deadline_ms)
        self.place(task, deadline_ms, moment=None)

    @rule(task=tasks)
    def cancel(self, task):
        assert self.timer.cancel(task) is (self.model.pop(task, None) is not None)
        assert self.timer.cancel(task) is False

    @rule(jump_ms=JUMPS_MS)
    def advance(self, jump_ms):
        self.now_ms += jump_ms
        self.compare_run(self.now_ms)

    @rule(jump_ms=JUMPS_MS, limit=st.integers(1, 4))
    def advance_in_parts(self, jump_ms, limit):
        self.now_ms += jump_ms
        self.compare_run(self.now_ms, limit)

    @rule()
    def advance_to_next_expiration(self):
        expiration_ms = self.timer.next_expiration_ms()
        if expiration_ms is not None:
            self.now_ms = max(self.now_ms, expiration_ms)
            self.compare_run(self.now_ms)

    def compare_run(self, now_ms, limit=None):
        self.advances += 1
        self.ran.clear()
        ran = self.timer.advance_to(now_ms, limit)
        while self.timer.is_behind:
            assert self.timer.next_expiration_ms() == now_ms
            part = self.timer.advance_to(now_ms, limit)
            assert part <= limit
            ran += part
        assert ran == len(self.ran)
        expected = self.run_model(now_ms // self.tick_ms)

        # Every task ran as often as it should have ...
        assert Counter(self.ran) == {task: len(entries) for task, entries in expected.items()}
        # ... in the order of the ticks, and of their placing if that was one moment's.
        last = Entry(-(10**18), 0, 0)
        for task in self.ran:
            entry = expected[task].popleft()
            assert last.tick <= entry.tick
            if last.tick == entry.tick and last.moment == entry.moment is not None:
                assert last.placement < entry.placement
            last = entry

    def run_model(self, last_tick):
        """Return the tasks that have to run up to `last_tick`, by task and in order."""
        expected = defaultdict(deque)
        for task, first in list(self.model.items()):
            del self.model[task]
            entry = first
            while entry.tick <= last_tick:
                expected[task].append(entry)
                if entry.repeats == 0:
                    break
                deadline_ms = entry.deadline_ms + task.period_ms
                tick = deadline_ms // self.tick_ms
                if tick <= entry.tick:
                    # Due when it was added, so it is left for the next advance.
                    self.model[task] = Entry(last_tick, deadline_ms, entry.repeats - 1)
                    break
                entry = Entry(tick, deadline_ms, entry.repeats - 1)
            else:
                self.model[task] = entry
        return expected

    @invariant()
    def counts_agree(self):
        if hasattr(self, "timer"):
            assert len(self.timer) == len(self.model)
            for task, entry in self.model.items():
                assert task.is_pending
                assert task.deadline_ms == entry.deadline_ms

    @invariant()
    def wakes_in_time(self):
        if hasattr(self, "timer"):
            expiration_ms = self.timer.next_expiration_ms()
            if not self.model:
                assert expiration_ms is None
            else:
                first_ms = min(entry.tick for entry in self.model.values()) * self.tick_ms
                assert expiration_ms <= max(first_ms, self.now_ms)

    @invariant()
    def heap_holds_each_queued_bucket_once(self):
        if hasattr(self, "timer"):
            queued = {bucket: expiration_ms for expiration_ms, _, bucket in self.timer._heap}
            assert len(queued) == len(self.timer._heap)
            wheel = self.timer.wheel
            while wheel is not None:
                for bucket in wheel.buckets:
                    assert bucket.expiration_ms == queued.get(bucket, NO_EXPIRATION_MS)
                    assert bucket.is_empty or bucket in queued
                wheel = wheel.overflow


TestTimerAgainstSortedList = TimerMachine.TestCase
TestTimerAgainstSortedList.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)
