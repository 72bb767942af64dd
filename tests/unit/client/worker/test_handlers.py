"""Registration: what can be a handler, and how what cannot is refused."""

from __future__ import annotations

import asyncio
import functools

import pytest

from coordinator.client import BlockingPartition, Partition, Worker
from coordinator.client.worker import WrongHandler
from tests.unit.client.worker.kit import Town


@pytest.fixture
def worker() -> Worker:
    return Worker("a:1", "g", topics={"t": 1})


async def ok(p: Partition) -> None: ...
async def none() -> None: ...
async def two(p, q) -> None: ...
async def star(*p) -> None: ...
async def keyword(*, p) -> None: ...
async def optional(p, q=1) -> None: ...
async def agen(p):
    yield p


def gen(p):
    yield p


async def wrong_async(p: BlockingPartition) -> None: ...
def wrong_thread(p: Partition) -> None: ...


class Callable:
    async def __call__(self, p: Partition) -> None: ...


class Methods:
    async def handle(self, p: Partition) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (none, "takes other parameters than \\(p\\)"),
        (two, "takes other parameters than \\(p\\)"),
        (star, "takes other parameters"),
        (keyword, "takes other parameters"),
        (optional, "takes other parameters"),
        (gen, "is a generator, whose body would never run"),
        (agen, "is a generator"),
        (functools.partial(gen), "is a generator"),
        (wrong_async, "is `async def` and takes a BlockingPartition"),
        (wrong_thread, "is `def` and takes a Partition"),
        (Methods, "is no function"),
        (ok(None), "is no function"),
        ("handle", "is no function"),
        (lambda: None, "takes other parameters"),
    ],
)
def test_what_cannot_be_a_handler_is_refused_with_the_right_form(worker, function, message):
    for register in (worker.handler, worker.handler(topic="t"), worker.warm, worker.lost):
        with pytest.raises(WrongHandler, match=message) as caught:
            register(function)
        assert "async def handle(p: Partition) -> None" in str(caught.value)
        assert "\n" not in str(caught.value)
    if asyncio.iscoroutine(function):
        function.close()


@pytest.mark.parametrize(
    "function",
    [
        ok,
        Callable(),
        Methods().handle,
        functools.partial(two, q=1),
        lambda p: None,
        functools.partial(two, 1),
    ],
)
def test_whatever_takes_one_partition_is_taken_and_returned_as_it_is(worker, function):
    if isinstance(function, functools.partial) and function.keywords:
        with pytest.raises(WrongHandler):
            worker.handler(function)
        return
    assert worker.handler(function) is function


def test_a_second_handler_of_the_same_topic_is_refused(worker):
    worker.handler(ok)
    worker.handler(topic="t")(ok)
    with pytest.raises(ValueError, match="there is a handler of all topics already"):
        worker.handler(ok)
    with pytest.raises(ValueError, match="of topic 't' already"):
        worker.handler(topic="t")(ok)
    worker.warm(ok)
    with pytest.raises(ValueError, match="there is a warm hook already"):
        worker.warm(ok)


@pytest.mark.virtual_time
async def test_a_topic_without_a_handler_and_a_handler_without_a_topic_are_refused_at_start():
    town = Town()
    worker = town.worker(topics={"t": 1, "u": 1})
    with pytest.raises(ValueError, match="has no handler; decorate one"):
        await worker.serve()
    worker.handler(topic="t")(ok)
    with pytest.raises(ValueError, match="topic 'u' has no handler"):
        await worker.serve()
    worker.handler(topic="uu")(ok)
    worker.handler(ok)
    with pytest.raises(ValueError, match="there is a handler of topic 'uu'; the topics are"):
        await worker.serve()


@pytest.mark.virtual_time
async def test_a_lambda_of_the_wrong_colour_stops_the_worker_with_the_right_form():
    town = Town(1)
    worker = town.worker()
    worker.handler(lambda p: ok(p))  # noqa: PLW0108
    with pytest.raises(WrongHandler, match="returned a coroutine that nobody awaits"):
        await worker.serve()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"grace_m": 5}, "a worker has no setting 'grace_m'; did you mean grace_ms?"),
        ({"session_timeout": 5}, "did you mean session_timeout_ms?"),
        ({"max_poll_interval_ms": 5}, "progress_timeout_ms stands in for it"),
        ({"on_error": "ignore"}, "on_error is 'ignore'; it is one of 'retry', 'release', 'stop'"),
        ({"after_max_attempts": "retry"}, "it is one of 'release', 'stop'"),
        ({"max_attempts": 0}, "max_attempts is 0; it is a whole number from 1 on"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"idle_ms": 0.5}, "idle_ms is 0.5"),
        ({"grace_ms": -1}, "grace_ms is -1"),
        ({"progress_timeout_ms": True}, "progress_timeout_ms is True"),
        ({"start": "latest"}, "give log_ends="),
        ({"start": "newest"}, "start is \"earliest\", \"latest\""),
        ({"topics": ["t"]}, "topics"),
        ({"topics": {}}, "topics is empty; write the number of partitions"),
        ({"topics": {"t": 0}}, "topics has 't': 0, so there is nothing to do"),
        ({"topics": ["a", "b"]}, "topics={'a': 12, 'b': 12}"),
        ({"topics_refresh_ms": 0}, "topics_refresh_ms is 0; it is a whole number from 1 on"),
        ({"log_ends_interval_s": 0}, "log_ends_interval_s is 0; write seconds, 5.0"),
        ({"begin_offsets": {"t": 0}}, "begin_offsets is {'t': 0}; it is a function"),
        ({"source": "parquet:/x"}, "source is 'parquet:/x'; write source=open_source"),
        ({"handle_signals": False}, "worker.run(handle_signals=False)"),
        ({"zzz": 1}, "a worker has no setting 'zzz'; there are bootstrap, group_id, topics"),
        ({"bootstrap": None}, "write an address, 'localhost:7400'"),
        ({"bootstrap": "http://localhost:7400"}, "without http://"),
        ({"topics": None}, "give topics="),
        ({"assignors": ["rang"]}, "range"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused_in_a_sentence(settings, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        Worker(**{"bootstrap": "a:1", "group_id": "g", "topics": {"t": 1}} | settings)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"drain": "hand"}, "drain is 'hand'; it is one of 'commit', 'manual'"),
        ({"topic": 5}, "topic is 5; write a name"),
        ({"topic": ["t"]}, "topic is ['t']; write a name"),
        ({"on_error": "ignore"}, "on_error is 'ignore'; it is one of"),
    ],
)
def test_settings_of_a_handler_that_make_no_sense_are_refused_in_a_sentence(
    worker, settings, message
):
    with pytest.raises((TypeError, ValueError)) as caught:
        worker.handler(**settings)
    assert message in str(caught.value)


def test_rows_need_a_source(worker):
    with pytest.raises(WrongHandler, match="reads the worker's source"):
        worker.rows(batch=5)(ok)


def test_nothing_of_the_library_exists_before_the_start(worker):
    import threading

    before = threading.active_count()
    worker.handler(ok)
    assert threading.active_count() == before
    assert worker.state.phase == "new"
