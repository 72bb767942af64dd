"""The driver of a shard: what it asks for, and what it makes of how that went; bugs above all."""

from __future__ import annotations

import itertools

import pytest

from coordinator.core.config import GroupConfig
from coordinator.core.values.commands import CallCancelled
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import CallId, ShardId
from coordinator.core.values.requests import FetchOffsets, Heartbeat
from coordinator.core.values.session_messages import Attach
from coordinator.runtime.jobs import build
from coordinator.runtime.payloads import PAYLOADS
from coordinator.shard import driver as drivers
from coordinator.shard.driver import Patience, ShardDriver
from coordinator.shard.effects import (
    Broken,
    Build,
    Done,
    FoundDamage,
    HostEffects,
    Load,
    LogFailed,
    Problem,
    Start,
    Stop,
    TakeOver,
    WriteEntry,
    WriteSnapshot,
)
from coordinator.shard.followers import FetchEntries
from coordinator.shard.inputs import Activate, AppendFailure, Tick
from coordinator.shard.shard import Shard
from coordinator.shard.snapshots import ENTRIES
from coordinator.storage.log import Damaged, Entry, Fence, Loaded
from coordinator.storage.memory import MemoryLog
from coordinator.testing import immediate
from coordinator.testing.immediate import ImmediateHost
from coordinator.testing.virtual import CountingIds
from tests.kit import commands
from timer.clock import VirtualClock

SHARD = ShardId(0)


class Bug(Exception):
    """Ours."""


class BrokenShard(Shard):
    """A shard whose steps fail for some inputs, and whose load may fail as well.

    Args:
        plan: names of inputs, or "restore" and "replay", and how often each is to fail.
    """

    def __init__(self, plan: dict[str, int]) -> None:
        super().__init__(GroupConfig(), CountingIds(), PAYLOADS, now_ms=0)
        self._plan = plan

    def _fail_if_planned(self, name: str) -> None:
        if self._plan.get(name, 0):
            self._plan[name] -= 1
            raise Bug(name)

    def step(self, event, now_ms, out):
        self._fail_if_planned(type(event).__name__)
        super().step(event, now_ms, out)
        self._fail_if_planned(f"after {type(event).__name__}")

    def replay(self, records, now_ms):
        self._fail_if_planned("replay")
        super().replay(records, now_ms)

    def restore(self, now_ms, out, **more):
        self._fail_if_planned("restore")
        super().restore(now_ms, out, **more)


class Bench:
    """A driver on virtual time, with a log in memory."""

    def __init__(self) -> None:
        self.plan: dict[str, int] = {}
        self.log = MemoryLog()
        self.clock = VirtualClock()
        self.answers: dict[int, object] = {}
        self.told: list[tuple[int, object]] = []
        self.jobs: list[tuple[int, object]] = []
        self.ended: list[int] = []
        self._calls = itertools.count(1)
        self.host = ImmediateHost(
            self.log, self.clock, lambda: BrokenShard(self.plan), self._receive, Patience()
        )
        self.host.handle(Start())

    def _receive(self, effects: HostEffects) -> None:
        for call_id, answer in (*effects.replies, *effects.fetched):
            assert call_id not in self.answers, "a call is answered once"
            self.answers[call_id] = answer
        now_ms = self.clock.now_ms()
        self.told += [(now_ms, notice) for notice in effects.notices]
        self.jobs += [(now_ms, job) for job in effects.jobs]
        self.ended += [stream_id for stream_id, _ in effects.ended]

    @property
    def is_serving(self) -> bool:
        return self.host.driver.shard is not None

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms, self.host)

    def ask(self, command):
        """The answer; None: it is parked."""
        self.host.handle(command)
        return self.answers.get(command.call_id)

    def commit(self, offset: int):
        return self.ask(commands.commit(self.new_call(), offset))

    def fetch(self):
        return self.ask(FetchOffsets(call_id=self.new_call(), group_id="g"))

    def new_call(self) -> CallId:
        return CallId(next(self._calls))

    def tracebacks(self) -> list[str]:
        return [str(message.error) for _, message in self.told if getattr(message, "error", None)]

    def is_well(self, offset: int = 7) -> bool:
        """True if durable offsets are served and commits are accepted."""
        return (
            self.fetch().offsets[0].offset == offset
            and self.commit(offset).results[0].error is ErrorCode.NONE
        )


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    assert bench.commit(7).results[0].error is ErrorCode.NONE
    return bench


def parked(bench: Bench) -> CallId:
    """A call that waits for the log."""
    bench.host.hold()
    bench.commit(8)
    return CallId(max(bench.host.driver._requests))


CAUSES = {
    "CommitOffsets": lambda bench: bench.commit(8),
    "Appended": lambda bench: bench.commit(8),
    "AppendFailed": lambda bench: (bench.log.fail_next_append("too_large"), bench.commit(8)),
    "Tick": lambda bench: bench.pass_time(bench.host.next_expiration_ms() - bench.clock.now_ms()),
    "Activate": lambda bench: bench.host.handle(Activate()),
    "CallCancelled": lambda bench: bench.host.handle(CallCancelled(parked(bench))),
    "FetchEntries": lambda bench: bench.host.handle(
        FetchEntries(call_id=bench.new_call(), follower=2, offset=1, min_bytes=1, max_wait_ms=5)
    ),
    "Heartbeat": lambda bench: bench.host.handle(
        Heartbeat(call_id=bench.new_call(), group_id="g", generation=1, member_id="m")
    ),
}


@pytest.mark.parametrize("step", CAUSES)
@pytest.mark.parametrize("when", ["", "after "])
def test_a_bug_in_a_step_answers_everybody_and_loads_the_shard_again(bench, step, when):
    """`after`: what the step has added to the effects is taken back."""
    waiting = FetchEntries(
        call_id=bench.new_call(), follower=3, offset=1, min_bytes=1, max_wait_ms=10**9
    )
    assert bench.ask(waiting) is None
    last = next(bench._calls) - 1
    bench.plan[when + step] = 1
    CAUSES[step](bench)
    assert not bench.is_serving
    assert bench.answers[waiting.call_id].error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    unanswered = set(range(1, max(bench.answers) + 1)) - set(bench.answers) - {last + 1}
    assert step == "CallCancelled" or not unanswered
    assert bench.tracebacks() == [when + step]
    assert bench.fetch().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.pass_time(999)
    assert not bench.is_serving
    bench.host.release()
    bench.pass_time(1)
    assert bench.commit(9).results[0].error is ErrorCode.NONE
    assert bench.fetch().offsets[0].offset == 9
    assert bench.tracebacks() == [when + step], "it is told once"


def test_a_stream_that_ends_in_a_step_with_a_bug_is_ended_once(bench):
    """The step has taken it out of the shard's table of streams before it raised."""
    first, second = (
        Attach(
            call_id=bench.new_call(), group_id="s", incarnation="i", stream_number=number,
            topics=(("t", 1),),
        )
        for number in (1, 2)
    )  # fmt: skip
    assert bench.ask(first).error is ErrorCode.NONE
    bench.plan["after Attach"] = 1
    bench.ask(second)
    assert not bench.is_serving
    assert sorted(bench.ended) == [first.call_id, second.call_id]


@pytest.mark.parametrize("step", ["replay", "restore"])
@pytest.mark.parametrize("times", [1, 5])
def test_a_bug_in_a_load_serves_nobody_before_the_load_has_ended(bench, step, times):
    bench.plan |= {"Activate": 1, step: times}
    bench.host.handle(Activate())
    for backoff_ms in (1_000, 2_000, 4_000, 8_000, 16_000)[:times]:
        bench.pass_time(backoff_ms)
        assert not bench.is_serving
        assert bench.fetch().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.pass_time(32_000)
    assert bench.is_well()
    assert bench.tracebacks() == ["Activate", step], "each is told once with its traceback"


def test_a_bug_that_comes_back_is_met_by_a_back_off_that_grows(bench):
    bench.plan |= {"Activate": 1, "restore": 9}
    began_ms = bench.clock.now_ms()
    bench.jobs.clear()
    bench.host.handle(Activate())
    bench.pass_time(400_000)
    times = [began_ms, *(at_ms for at_ms, job in bench.jobs if isinstance(job, TakeOver))]
    backoffs = [(later - sooner) // 1_000 for sooner, later in itertools.pairwise(times)]
    assert backoffs == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert bench.is_well()
    bench.pass_time(60_000)
    bench.plan["Activate"] = 1
    bench.host.handle(Activate())
    bench.pass_time(999)
    assert not bench.is_serving
    bench.pass_time(1)
    assert bench.is_serving, "it had served for long enough"


def test_a_bug_in_the_codec_leaves_no_append_pending(bench, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(immediate.codec, "encode", lambda record: 1 / 0)
        answer = bench.commit(8)
    assert answer.results[0].error is ErrorCode.UNKNOWN_SERVER_ERROR
    bench.pass_time(1_000)
    assert bench.is_well()


def test_a_request_that_has_two_answers_is_a_bug_of_the_step(bench, monkeypatch):
    step = Shard.step

    def twice(self, event, now_ms, out):
        step(self, event, now_ms, out)
        out.replies *= 2

    beat = Heartbeat(call_id=bench.new_call(), group_id="g", generation=1, member_id="m")
    with monkeypatch.context() as patch:
        patch.setattr(Shard, "step", twice)
        effects = bench.host.driver.handle(beat, 0)
    assert not bench.is_serving
    assert "2 times" in str(effects.notices[0].error)


def test_an_effect_that_cannot_be_carried_out_ends_the_shard(bench):
    bench.host.hold()
    assert bench.commit(8) is None
    waiting = max(bench.host.driver._requests)
    bench.host.handle(Broken(Bug("alarm")))
    assert bench.answers[waiting].results[0].error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert bench.tracebacks() == ["alarm"]
    assert bench.fetch().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.pass_time(1_000)
    bench.host.release()  # The entry of the shard that was given up: fenced, and nobody cares.
    assert bench.is_well()


def test_a_bug_while_it_stops_answers_everybody(bench):
    call = parked(bench)
    bench.plan["Unload"] = 1
    bench.host.handle(Stop(ErrorCode.NOT_COORDINATOR))
    assert bench.answers[call].results[0].error is ErrorCode.NOT_COORDINATOR
    assert bench.fetch().error is ErrorCode.NOT_COORDINATOR
    assert bench.host.next_expiration_ms() is None


def test_a_stop_while_it_waits_to_load_again_ends_the_wait(bench):
    bench.plan |= {"Activate": 1}
    bench.host.handle(Activate())
    bench.host.handle(Stop(ErrorCode.NOT_COORDINATOR))
    assert bench.fetch().error is ErrorCode.NOT_COORDINATOR
    assert bench.host.next_expiration_ms() is None


# --- By hand: one job at a time. ---


def new_shard() -> Shard:
    return Shard(GroupConfig(), CountingIds(), PAYLOADS, now_ms=0)


FENCE = Fence(SHARD, 1)
NOTHING = Loaded(None, [])
ASKED = FetchOffsets(call_id=CallId(1), group_id="g")


def only_job(effects: HostEffects):
    (job,) = effects.jobs
    return job


def loading() -> tuple[ShardDriver, Build]:
    """A driver whose log has been read, and nothing applied."""
    driver = ShardDriver(SHARD)
    take_over = only_job(driver.handle(Start(leader_epoch=3), 0))
    assert take_over.leader_epoch == 3
    load = only_job(driver.handle(Done(take_over, FENCE), 0))
    return driver, only_job(driver.handle(Done(load, NOTHING), 0))


def serving() -> ShardDriver:
    driver, job = loading()
    driver.handle(Done(job, build(new_shard(), NOTHING, 0)), 0)
    assert driver.shard is not None
    return driver


def answer(driver: ShardDriver) -> ErrorCode:
    ((_, reply),) = driver.handle(ASKED, 0).replies
    return reply.error


def test_a_shard_serves_when_its_load_is_whole_and_not_before():
    driver = ShardDriver(SHARD)
    assert answer(driver) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    job = only_job(driver.handle(Start(), 0))
    for kind, result in ((TakeOver, FENCE), (Load, NOTHING), (Build, None)):
        assert isinstance(job, kind)
        assert driver.is_starting
        assert answer(driver) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if result is not None:
            job = only_job(driver.handle(Done(job, result), 0))
    driver.handle(Done(job, build(new_shard(), NOTHING, 0)), 0)
    assert not driver.is_starting
    assert answer(driver) is ErrorCode.NONE


def test_a_load_that_ends_after_the_stop_serves_nobody():
    driver, job = loading()
    driver.handle(Stop(ErrorCode.NOT_COORDINATOR), 0)
    assert not driver.is_wanted(job)
    effects = driver.handle(Done(job, build(new_shard(), NOTHING, 0)), 0)
    assert driver.shard is None
    assert effects == HostEffects()
    assert driver.handle(Start(), 0) == HostEffects(), "nor a start that comes too late"


def test_what_comes_of_a_job_of_an_earlier_life_is_not_heard():
    driver, build_job = loading()
    driver.handle(Broken(Bug("load"), build_job), 0)
    late = driver.handle(Done(build_job, build(new_shard(), NOTHING, 0)), 0)
    assert (driver.shard, late.jobs) == (None, [])
    assert driver.handle(Broken(Bug("late"), build_job), 0).notices == []
    assert driver.handle(FoundDamage(build_job, Damaged("late")), 0).notices == []
    assert driver.handle(LogFailed(build_job, AppendFailure.FENCED), 0).jobs == []


def test_an_earlier_attempt_of_the_same_node_does_not_stop_a_load():
    driver = ShardDriver(SHARD)
    job = only_job(driver.handle(Start(leader_epoch=5), 0))
    load = only_job(driver.handle(Done(job, FENCE), 0))
    again = driver.handle(LogFailed(load, AppendFailure.FENCED), 0)
    assert isinstance(only_job(again), TakeOver)
    assert again.notices == []


def test_a_later_epoch_does():
    driver = ShardDriver(SHARD)
    job = only_job(driver.handle(Start(leader_epoch=5), 0))
    effects = driver.handle(LogFailed(job, AppendFailure.FENCED, reason="leader epoch 6"), 0)
    assert effects.notices == [Problem("shard 0 is led elsewhere: leader epoch 6")]
    assert not driver.is_starting
    assert effects.wake_at_ms is None
    assert answer(driver) is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(("stage", "words"), [(TakeOver, "written"), (Load, "read")])
def test_a_log_that_is_away_while_it_loads_is_asked_again_and_told_once(stage, words):
    driver = ShardDriver(SHARD)
    now_ms, messages = 0, []
    effects = driver.handle(Start(), now_ms)
    for _ in range(3):
        job = only_job(effects)
        if stage is Load:
            job = only_job(driver.handle(Done(job, FENCE), now_ms))
        effects = driver.handle(LogFailed(job, AppendFailure.UNAVAILABLE, reason="away"), now_ms)
        messages += effects.notices
        assert effects.wake_at_ms == now_ms + 1_000
        assert driver.is_starting
        now_ms += 1_000
        effects = driver.handle(Tick(), now_ms)
    assert messages == [Problem(f"the log cannot be {words}: away")]
    load = only_job(driver.handle(Done(only_job(effects), FENCE), now_ms))
    job = only_job(driver.handle(Done(load, NOTHING), now_ms))
    effects = driver.handle(Done(job, build(new_shard(), NOTHING, 0)), now_ms)
    assert [notice.reason for notice in effects.notices] == [
        f"no longer: the log cannot be {words}: away"
    ]


def test_damage_ends_the_first_load_and_is_looked_at_again_by_later_ones():
    driver, job = loading()
    damage = Damaged("entry 7")
    assert driver.handle(FoundDamage(job, damage), 0).jobs == []
    assert driver.damage is damage
    assert not driver.is_starting

    driver = serving()
    effects = driver.handle(Broken(Bug("b")), 0)
    load = only_job(driver.handle(Tick(), effects.wake_at_ms))
    load = only_job(driver.handle(Done(load, FENCE), 1_000))
    effects = driver.handle(FoundDamage(load, damage), 1_000)
    assert effects.notices == [Problem("entry 7")]
    assert isinstance(only_job(driver.handle(Tick(), effects.wake_at_ms)), TakeOver)
    assert driver.damage is None


@pytest.mark.parametrize("how", ["damage", "bug"])
def test_what_a_standby_has_gathered_and_does_not_fit_is_read_anew(how):
    driver = ShardDriver(SHARD)
    standby = build(new_shard(), NOTHING, 0)
    standby.sequence = 4
    take_over = only_job(driver.handle(Start(standby=standby), 0))
    load = only_job(driver.handle(Done(take_over, FENCE), 0))
    assert load.after == 4
    job = only_job(driver.handle(Done(load, NOTHING), 0))
    assert job.standby is standby
    if how == "damage":
        effects = driver.handle(FoundDamage(job, Damaged("entry 9 follows entry 4")), 0)
    else:
        effects = driver.handle(Broken(Bug("replay"), job), 0)
        effects = driver.handle(Tick(), effects.wake_at_ms)
    load = only_job(driver.handle(Done(only_job(effects), FENCE), 0))
    assert load.after == 0
    assert only_job(driver.handle(Done(load, NOTHING), 0)).standby is None


def committing(driver: ShardDriver, call: int = 5) -> WriteEntry:
    return only_job(driver.handle(commands.commit(call, 1), 0))


def test_an_entry_of_which_nobody_knows_is_written_again_after_a_back_off_that_grows():
    driver = serving()
    first = committing(driver)
    now_ms, job = 0, first
    for attempt in range(2, 5):
        effects = driver.handle(LogFailed(job, AppendFailure.AMBIGUOUS), now_ms)
        assert effects.jobs == []
        assert driver.handle(Tick(), now_ms + 50 * attempt - 1).jobs == []
        now_ms += 50 * attempt
        job = only_job(driver.handle(Tick(), now_ms))
        assert (job.append.sequence, job.append.attempt) == (first.append.sequence, attempt)
    effects = driver.handle(Done(job, (b"r",)), now_ms)
    ((call_id, reply),) = effects.replies
    assert (call_id, reply.results[0].error) == (5, ErrorCode.NONE)


def test_an_entry_that_waits_to_be_written_again_is_not_once_the_shard_is_given_up():
    driver = serving()
    driver.handle(LogFailed(committing(driver), AppendFailure.AMBIGUOUS), 0)
    effects = driver.handle(Stop(ErrorCode.NOT_COORDINATOR), 0)
    assert [reply.results[0].error for _, reply in effects.replies] == [ErrorCode.NOT_COORDINATOR]
    assert driver.handle(Tick(), 100_000) == HostEffects()


def test_a_node_that_the_log_refuses_answers_everybody_and_asks_again():
    driver = serving()
    job = committing(driver)
    effects = driver.handle(LogFailed(job, AppendFailure.FENCED, reason="epoch 2"), 0)
    ((_, reply),) = effects.replies
    assert reply.results[0].error is ErrorCode.NOT_COORDINATOR
    assert [notice.reason for notice in effects.notices] == ["the log has refused this node"]
    assert answer(driver) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert isinstance(only_job(driver.handle(Tick(), effects.wake_at_ms)), TakeOver)


def test_without_reloads_a_shard_that_the_log_has_refused_is_given_up():
    driver, job = loading()
    driver._patience = Patience(reloads=False)
    driver.handle(Done(job, build(new_shard(), NOTHING, 0)), 0)
    effects = driver.handle(LogFailed(committing(driver), AppendFailure.FENCED), 0)
    assert effects.wake_at_ms is None
    assert answer(driver) is ErrorCode.NOT_COORDINATOR


def snapshot_due() -> tuple[ShardDriver, WriteSnapshot]:
    driver, job = loading()
    entries = [Entry(number, 1, number - 1, ()) for number in range(1, ENTRIES)]
    driver.handle(Done(job, build(new_shard(), Loaded(None, entries), 0)), 0)
    job = committing(driver)
    effects = driver.handle(Done(job, (b"r",)), 0)
    snapshot = only_job(effects)
    assert isinstance(snapshot, WriteSnapshot)
    assert snapshot.sequence == ENTRIES
    assert len(snapshot.records) == 1
    return driver, snapshot


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (lambda job: Done(job, 10), None),
        (lambda job: LogFailed(job, AppendFailure.UNAVAILABLE, reason="away"), "taken: away"),
        (lambda job: Broken(Bug("encode"), job), "no snapshot was taken"),
    ],
)
def test_a_snapshot_that_fails_is_told_of_and_stops_nobody(ended, words):
    driver, snapshot = snapshot_due()
    assert not driver._policy.is_due(), "one at a time"
    notices = driver.handle(ended(snapshot), 0).notices
    assert [words in problem.reason for problem in notices] == ([] if words is None else [True])
    assert driver.shard is not None
    assert driver._snapshot is None
    assert driver.handle(ended(snapshot), 0).notices == [], "heard once"


def test_the_driver_never_raises(monkeypatch):
    driver = serving()
    monkeypatch.setattr(drivers.Bugs, "forgive", lambda *_: None)
    effects = driver.handle(Done(committing(driver), 7), 0)
    assert driver.shard is None
    assert isinstance(effects.notices[0].error, TypeError)


def test_an_attach_that_knows_a_later_epoch_is_told_apart(bench):
    serves = bench.host.driver.fence_epoch
    sessions = []
    for number, epoch in enumerate((0, serves, serves + 1), 1):
        attach = Attach(
            call_id=bench.new_call(),
            group_id="s",
            incarnation="i",
            stream_number=number,
            topics=(("t", 1),),
            epoch=epoch,
        )
        sessions.append(bench.ask(attach).session_id)
    assert sessions[0] == sessions[1]
    assert sessions[2] not in sessions[:2]
