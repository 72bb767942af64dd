"""Hooks, positions, topics that grow, concurrency, idle handlers, commits of several partitions."""

from __future__ import annotations

import asyncio
import gc
import itertools
import warnings

import pytest

from coordinator.assignors import TopicPartition
from coordinator.client import BlockingPartition, Member, OffsetMismatch, Partition, StaleMember
from tests.unit.client.worker.kit import Town

pytestmark = pytest.mark.virtual_time
T0 = TopicPartition("t", 0)


def state(worker, number: int = 0):
    return worker.state.partitions[TopicPartition("t", number)]


# --- Hooks ---


async def test_hooks_are_called_around_the_handler():
    town = Town(1)
    worker = town.worker()
    messages: list[str] = []

    @worker.warm
    async def warm(p: Partition) -> None:
        await asyncio.sleep(1)
        messages.append(f"warm {p.position}")

    @worker.handler
    async def handle(p: Partition) -> None:
        messages.append("handle")
        await p.revoking.wait()
        await asyncio.sleep(1)
        messages.append("handled")

    @worker.drain
    def drain(p: BlockingPartition) -> None:
        messages.append("drain")
        worker.environment.sleep(5)
        assert p.revoking.is_set()
        assert p.valid
        messages.append("drained")

    @worker.lost
    async def lost(p: Partition) -> None:
        messages.append("lost")

    async with town.serving(worker):
        await town.until(lambda: "handle" in messages)
    assert messages == ["warm 0", "handle", "drain", "handled", "drained"]


async def test_a_lost_partition_is_told_to_the_lost_hook_alone():
    town = Town(1)
    worker = town.worker(session_timeout_ms=10_000)
    messages: list[str] = []

    @worker.handler
    async def handle(p: Partition) -> None:
        try:
            await asyncio.sleep(10_000)
        finally:
            messages.append("ended")

    @worker.lost
    async def lost(p: Partition) -> None:
        assert not p.valid
        with pytest.raises(StaleMember):
            await p.commit(5)
        messages.append("lost")

    @worker.drain
    async def drain(p: Partition) -> None:
        messages.append("drain")

    serving = town.serve(worker)
    await town.until(lambda: worker.state.counts["runs"])
    worker.environment.is_cut = True
    await town.until(lambda: len(messages) == 2)
    assert sorted(messages) == ["ended", "lost"]
    worker.stop(grace_ms=0)
    await serving


# --- Positions ---


@pytest.mark.parametrize(
    ("settings", "position"),
    [
        ({}, 0),
        ({"begin_offsets": lambda keys: dict.fromkeys(keys, 3)}, 3),
        ({"start": "latest", "log_ends": lambda keys: dict.fromkeys(keys, 9)}, 9),
        ({"start": lambda key: key.partition + 7}, 7),
    ],
)
async def test_a_partition_without_a_committed_offset_begins_where_the_policy_says(
    settings, position
):
    town = Town(1)
    worker = town.worker(**settings)
    seen = []

    @worker.handler
    async def handle(p: Partition) -> None:
        seen.append(p.position)

    async with town.serving(worker):
        await town.until(lambda: seen)
        assert seen[0] == position


async def test_start_may_be_a_coroutine_function_and_its_failure_is_one_of_the_handler():
    town = Town(1)
    attempts = itertools.count()

    async def start(key: TopicPartition) -> int:
        if next(attempts) < 2:
            raise OSError("no disk")
        return 4

    worker = town.worker(start=start)
    seen = []

    @worker.handler
    async def handle(p: Partition) -> None:
        seen.append(p.position)

    async with town.serving(worker):
        await town.until(lambda: seen)
        assert seen[0] == 4
        assert worker.state.counts["failures"] == 2


# --- Topics ---


@pytest.mark.parametrize("is_async", [True, False])
async def test_topics_that_grow_are_joined_again_with_the_new_count(is_async):
    town = Town(1)
    counts = {"t": 1}

    async def ask_async() -> dict[str, int]:
        return dict(counts)

    worker = town.worker(
        topics=ask_async if is_async else lambda: dict(counts), topics_refresh_ms=5_000
    )
    other = town.worker("other", topics=ask_async, topics_refresh_ms=5_000)
    for one in (worker, other):

        @one.handler
        async def handle(p: Partition) -> None:
            await p.revoking.wait()

    serving = [town.serve(worker), town.serve(other)]
    await town.until(lambda: len(worker.state.partitions) + len(other.state.partitions) == 1)
    counts["t"] = 4
    await town.until(lambda: len(worker.state.partitions) == len(other.state.partitions) == 2)
    await town.stop(worker, other)
    await asyncio.gather(*serving)


async def test_a_topics_function_that_fails_changes_nothing_and_is_logged(caplog):
    town = Town(1)
    answers = iter([{"t": 1}, OSError("gone"), {"t": "x"}, {"t": 2}])

    def topics():
        answer = next(answers, {"t": 2})
        if isinstance(answer, Exception):
            raise answer
        return answer

    worker = town.worker(topics=topics, topics_refresh_ms=1_000)

    @worker.handler
    async def handle(p: Partition) -> None:
        await p.revoking.wait()

    async with town.serving(worker):
        await town.until(lambda: len(worker.state.partitions) == 2)
        said = [record.getMessage() for record in caplog.records]
        lines = [line for line in said if "topics cannot be asked" in line]
        assert len(lines) == 2


async def test_a_topics_function_that_fails_at_the_start_is_raised():
    town = Town(1)

    def topics():
        raise OSError("gone")

    worker = town.worker(topics=topics)

    @worker.handler
    async def handle(p: Partition) -> None: ...

    with pytest.raises(OSError, match="gone"):
        await worker.serve()


async def test_a_topic_may_have_a_handler_of_its_own():
    town = Town(1)
    worker = town.worker(topics={"t": 1, "refunds": 1})
    seen = set()

    @worker.handler
    async def handle(p: Partition) -> None:
        seen.add(("any", p.topic))

    @worker.handler(topic="refunds")
    def refund(p: BlockingPartition) -> None:
        seen.add(("refund", p.topic))

    async with town.serving(worker):
        await town.until(lambda: len(seen) == 2)
        assert seen == {("any", "t"), ("refund", "refunds")}


# --- Where logs end ---


async def test_a_log_that_was_made_anew_is_told_once_until_it_has_grown(caplog):
    town = Town(1)
    ends = {T0: 100}
    worker = town.worker(idle_ms=60_000, log_ends=lambda keys: dict(ends), log_ends_interval_s=1.0)

    @worker.handler
    async def handle(p: Partition) -> None:
        await p.commit(100)

    def told() -> list[str]:
        return [message for message in caplog.messages if "the log of t-0 ends at 40" in message]

    async with town.serving(worker):
        await asyncio.sleep(10)
        assert told() == []
        ends[T0] = 40
        await asyncio.sleep(10)
        assert len(told()) == 1
        assert "100 is committed: it was made anew or has lost rows" in told()[0]
        ends[T0] = 120
        await asyncio.sleep(2)
        ends[T0] = 40
        await asyncio.sleep(2)
        assert len(told()) == 2


async def test_an_end_that_was_looked_up_before_rows_were_committed_is_no_short_log(caplog):
    """The function may have looked before the rows came that a handler has committed since."""
    town = Town(1)
    seen = [0]
    worker = town.worker(log_ends=lambda keys: {T0: seen[0]}, log_ends_interval_s=1.0)

    @worker.handler
    async def handle(p: Partition) -> None:
        while True:
            seen[0] = p.position
            await p.commit(p.position + 1)
            await asyncio.sleep(0.7)

    async with town.serving(worker):
        await asyncio.sleep(30)
    assert "made anew" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "lag"),
    [
        ({"log_ends": lambda keys: dict.fromkeys(keys, range(1_000_000, 1_000_050))}, 50),
        (
            {
                "log_ends": lambda keys: dict.fromkeys(keys, 1_000_050),
                "begin_offsets": lambda keys: dict.fromkeys(keys, 1_000_000),
            },
            50,
        ),
        ({"log_ends": lambda keys: dict.fromkeys(keys, 50)}, 50),
    ],
    ids=["range", "begins", "whole"],
)
async def test_lag_of_a_log_whose_first_rows_are_gone_counts_those_that_are_there(settings, lag):
    town = Town(1)
    worker = town.worker(log_ends_interval_s=1.0, **settings)

    @worker.handler
    async def handle(p: Partition) -> None:
        await asyncio.sleep(10_000)

    async with town.serving(worker):
        await asyncio.sleep(5)
        assert town.coordinator.shard.machine.groups["g"].lag() == lag


# --- Idle, done, concurrency ---


async def test_a_handler_that_returned_is_called_after_idle_ms_or_when_the_log_has_grown():
    town = Town(1)
    ends = {T0: 0}
    worker = town.worker(idle_ms=60_000, log_ends=lambda keys: dict(ends), log_ends_interval_s=1.0)
    calls = []

    @worker.handler
    async def handle(p: Partition) -> None:
        calls.append(town.loop.time())
        await p.commit(ends[T0])

    async with town.serving(worker):
        await asyncio.sleep(20)
        assert len(calls) == 1
        ends[T0] = 5
        await asyncio.sleep(2)
        assert len(calls) == 2
        await asyncio.sleep(61)
        assert len(calls) == 3


async def test_no_more_handlers_run_at_once_than_concurrency_and_all_get_their_turn():
    town = Town(8)
    worker = town.worker(concurrency=3)
    running, most, seen = set(), [], set()

    @worker.handler
    async def handle(p: Partition) -> None:
        running.add(p.number)
        seen.add(p.number)
        most.append(len(running))
        await asyncio.sleep(1)
        running.discard(p.number)

    async with town.serving(worker):
        await town.until(lambda: len(seen) == 8, within_s=10)
        assert max(most) == 3


async def test_partitions_that_starve_since_handlers_do_not_return_are_warned_of_once(caplog):
    town = Town(3)
    worker = town.worker(concurrency=1)

    @worker.handler
    async def handle(p: Partition) -> None:
        await p.revoking.wait()

    async with town.serving(worker):
        await asyncio.sleep(100)
        lines = [r.getMessage() for r in caplog.records if "has waited for" in r.getMessage()]
        assert len(lines) == 1
        assert "concurrency=" in lines[0]


# --- Commits ---


async def test_several_partitions_are_committed_in_one_call():
    town = Town(2)
    worker = town.worker()
    held: dict[int, Partition] = {}

    @worker.handler
    async def handle(p: Partition) -> None:
        held[p.number] = p
        await p.revoking.wait()

    async with town.serving(worker):
        await town.until(lambda: len(held) == 2)
        await worker.commit({held[0]: 5, held[1]: 6}, atomic=True, manifest=b"m")
        assert (town.stored(0), town.stored(1)) == (5, 6)
        assert held[0].position == 5
        with pytest.raises(TypeError, match="offsets by partition"):
            await worker.commit({})
    with pytest.raises(StaleMember):
        await worker.commit({held[0]: 7})


async def test_threads_commit_several_partitions_too():
    town = Town(2)
    worker = town.worker()
    held: dict[int, BlockingPartition] = {}

    @worker.handler
    def handle(p: BlockingPartition) -> None:
        held[p.number] = p
        if len(held) == 2:
            worker.commit({held[0]: 5, held[1]: 6})
        p.revoking.wait()

    async with town.serving(worker):
        await town.until(lambda: town.stored(1) == 6)
        assert town.stored(0) == 5


async def test_commit_takes_metadata_and_the_offset_that_must_be_stored():
    town = Town(1)
    worker = town.worker()
    raised = []

    @worker.handler
    async def handle(p: Partition) -> None:
        await p.commit(3, "three", expected=-1)
        assert p.metadata == "three"
        try:
            await p.commit(5, expected=4)
        except OffsetMismatch as error:
            raised.append(error.found)
        await p.revoking.wait()

    async with town.serving(worker):
        await town.until(lambda: raised)
        assert raised == [{T0: 3}]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("whose", ["partition", "worker"])
async def test_a_worker_warns_once_of_commits_that_are_not_awaited(caplog, whose):
    town, rows = Town(2), []
    worker = town.worker(idle_ms=1_000)

    @worker.handler
    async def handle(p: Partition) -> None:
        rows.append(p.position)
        _ = p.commit(8) if whose == "partition" else worker.commit({p: 8})

    async with town.serving(worker):
        await town.until(lambda: len(rows) >= 6)
        [line] = [r.getMessage() for r in caplog.records if "await" in r.getMessage()]
        assert "makes commits that it does not await: nothing was stored" in line
        assert town.stored() == -1


async def test_commits_that_are_awaited_later_or_in_tasks_are_no_forgotten_ones(caplog):
    town = Town(1)
    worker = town.worker()

    @worker.handler
    async def handle(p: Partition) -> None:
        await asyncio.create_task(p.commit(p.position + 1))
        later = p.commit(p.position + 1)
        await asyncio.sleep(1)
        await later

    async with town.serving(worker):
        await town.until(lambda: town.stored() >= 4)
    assert "does not await" not in caplog.text


@pytest.mark.parametrize("name", ["commit", "log_end", "alive", "done"])
async def test_a_forgotten_await_is_a_warning(name):
    town = Town(1)
    worker = town.worker()
    forgotten = []

    @worker.handler
    async def handle(p: Partition) -> None:
        getattr(p, name)(*[3] * (name in ("commit", "log_end")))
        forgotten.append(p)
        await p.revoking.wait()

    async with town.serving(worker):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            await town.until(lambda: forgotten)
            gc.collect()
        assert f"coroutine 'Partition.{name}' was never awaited" in str(caught[0].message)


async def test_a_cooperative_round_costs_no_commit_of_a_slow_handler():
    town = Town(4)
    one, two = town.worker("one"), town.worker("two")
    committed, errors = [], []

    @one.handler
    async def handle(p: Partition) -> None:
        try:
            for offset in itertools.count(1):
                await asyncio.sleep(0.7)
                await p.commit(offset)
                committed.append((p.number, p.token))
        except Exception as error:
            errors.append(error)
            raise

    two.handler(handle)
    serving = [town.serve(one)]
    await town.until(lambda: len(committed) > 8)
    for _ in range(3):
        serving.append(town.serve(two))
        await asyncio.sleep(15)
        await town.stop(two)
        await asyncio.sleep(15)
    assert errors == []
    kept = [n for n in range(4) if {t for m, t in committed if m == n and t <= 4} == {n + 1}]
    assert kept
    await town.stop(one)
    await asyncio.gather(*serving)


async def test_partitions_show_what_they_are():
    town = Town(1)
    worker = town.worker()
    shown = []

    @worker.handler
    async def handle(p: Partition) -> None:
        shown.append((repr(p), repr(p.revoking), p.topic, p.number, p.key, p.valid))
        await p.revoking.wait()
        shown.append(repr(p.revoking))

    async with town.serving(worker):
        await town.until(lambda: shown)
    assert shown == [
        ("Partition(t-0, position 0, token 1)", "<revoking: not set>", "t", 0, T0, True),
        "<revoking: set>",
    ]


# --- Threads ---


async def test_the_same_worker_with_threads():
    town = Town(2)
    worker = town.worker()
    ended = []

    @worker.handler
    def handle(p: BlockingPartition) -> None:
        try:
            while True:
                worker.environment.sleep(1)
                p.commit(p.position + 1)
        except Exception:  # noqa: BLE001  # It does not swallow the end.
            ended.append("swallowed")
        finally:
            ended.append(p.number)

    async with town.serving(worker):
        await town.until(lambda: town.stored(0) == 3)
    assert sorted(ended) == [0, 1]
    assert (town.stored(0), town.stored(1)) == (4, 4)


async def test_a_thread_waits_for_its_revocation_with_a_time_limit():
    town = Town(1)
    worker = town.worker()
    messages = []

    @worker.handler
    def handle(p: BlockingPartition) -> None:
        messages.append(p.revoking.wait(5))
        messages.append(p.revoking.wait())

    async with town.serving(worker):
        await town.until(lambda: messages)
        assert messages == [False]
    assert messages == [False, True]


# --- Progress, as members of session groups tell it ---


async def test_signs_of_life_and_ends_of_runs_are_the_members_progress(monkeypatch):
    shown: list[float] = []
    monkeypatch.setattr(Member, "alive", lambda member: shown.append(town.loop.time()))
    town = Town(1)
    worker = town.worker(idle_ms=60_000)
    begun: list[float] = []

    @worker.handler
    async def handle(p: Partition) -> None:
        begun.append(town.loop.time())
        await asyncio.sleep(100)
        await p.alive()
        await asyncio.sleep(100)
        if len(begun) == 2:
            raise ValueError("no progress")

    async with town.serving(worker):
        await town.until(lambda: len(begun) == 3)
    first, second, _ = begun
    signs = [at for at in shown if at < second + 201]
    expected = [first + 100, first + 200, second + 100]
    assert signs == pytest.approx(expected, abs=0.1)


def test_a_sign_of_life_moves_the_stamp_of_a_session_member():
    clock = [5]
    member = Member("a:1", "g", {"t": 1}, protocol="session", clock=lambda: clock[0])
    member.alive()
    assert member.machine.part.stream.progress == 5
    clock[0] = 70
    member.alive()
    assert member.machine.part.stream.progress == 70
