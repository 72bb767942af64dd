"""Handlers of rows: a source is read in lists, each is committed, and what changed is noticed."""

from __future__ import annotations

import pytest

from coordinator.client import BlockingPartition, Partition
from coordinator.sources import open_source
from tests.unit.client.worker.kit import Town

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def folder(tmp_path):
    """A log of two partitions, of 10 rows and of 3."""
    for number, count in ((0, 10), (1, 3)):
        part = tmp_path / f"partition={number}"
        part.mkdir()
        write(part / "a.jsonl", range(count))
    return tmp_path


def write(file, numbers) -> None:
    file.write_text("".join(f'{{"n": {number}}}\n' for number in numbers))


@pytest.mark.parametrize("form", ["async", "thread", "with partition"])
async def test_rows_come_in_lists_of_at_most_so_many_and_are_committed(folder, form):
    town = Town(2)
    worker = town.worker(topics=None, source=open_source(f"jsonl:{folder}", "t"))
    lists: list[list[int]] = []

    if form == "async":

        @worker.rows(batch=4)
        async def handle(rows) -> None:
            lists.append([row["n"] for row in rows])

    elif form == "thread":

        @worker.rows(batch=4)
        def handle_in_thread(rows) -> None:
            lists.append([row["n"] for row in rows])

    else:

        @worker.rows(batch=4)
        async def handle_with(p: Partition, rows) -> None:
            assert rows[0]["n"] == p.position
            lists.append([row["n"] for row in rows])

    serving = town.serve(worker)
    await town.until(lambda: town.stored(0) == 10 and town.stored(1) == 3)
    assert sorted(lists) == [[0, 1, 2], [0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    write(folder / "partition=0" / "b.jsonl", [10, 11])
    await town.until(lambda: town.stored(0) == 12)
    assert lists[-1] == [10, 11]
    await town.stop(worker)
    await serving


async def test_a_partition_that_appears_is_found_and_read_from_its_first_row(folder):
    """Also by a worker that starts at the end of what was there before."""
    town = Town(2)
    worker = town.worker(
        topics=None,
        source=open_source(f"jsonl:{folder}", "t"),
        start="latest",
        topics_refresh_ms=5_000,
    )
    rows_seen: list[int] = []

    @worker.rows
    async def handle(rows) -> None:
        rows_seen.extend(row["n"] for row in rows)

    serving = town.serve(worker)
    await town.until(lambda: len(worker.state.partitions) == 2)
    (folder / "partition=2").mkdir()
    write(folder / "partition=2" / "a.jsonl", [70, 71])
    await town.until(lambda: town.stored(2) == 2)
    write(folder / "partition=0" / "b.jsonl", [10])
    await town.until(lambda: town.stored(0) == 11)
    assert rows_seen == [70, 71, 10]
    await town.stop(worker)
    await serving


async def test_a_list_that_fails_is_handled_again(folder):
    town = Town(2)
    worker = town.worker(topics=None, source=open_source(f"jsonl:{folder}", "t"))
    lists: list[list[int]] = []

    @worker.rows(batch=100)
    async def handle(rows) -> None:
        lists.append([row["n"] for row in rows])
        if lists.count(list(range(10))) == 1 and len(rows) == 10:
            raise ValueError("poison")

    serving = town.serve(worker)
    await town.until(lambda: town.stored(0) == 10 and town.stored(1) == 3)
    assert lists.count(list(range(10))) == 2
    await town.stop(worker)
    await serving


async def test_rows_that_changed_before_the_committed_offset_are_a_failure(folder):
    town = Town(2)
    worker = town.worker(topics=None, source=open_source(f"jsonl:{folder}", "t"), on_error="stop")

    @worker.rows
    async def handle(rows) -> None: ...

    serving = town.serve(worker)
    await town.until(lambda: town.stored(0) == 10)
    write(folder / "partition=0" / "0.jsonl", [77])
    with pytest.raises(ValueError, match=r"changed|before"):
        await serving


async def test_a_lambda_of_the_wrong_colour_stops_the_worker(folder):
    town = Town(2)
    worker = town.worker(topics=None, source=open_source(f"jsonl:{folder}", "t"))

    async def handle(rows) -> None: ...

    worker.rows(batch=5)(lambda rows: handle(rows))  # noqa: PLW0108
    with pytest.raises(BaseException, match=r"nobody awaits|several handlers"):
        await worker.serve()


async def test_what_cannot_handle_rows_is_refused(tmp_path):
    from coordinator.client import Worker

    worker = Worker("a:1", "g", source=open_source(f"jsonl:{tmp_path}", "t"))

    def wrong(p: Partition, rows) -> None: ...
    def three(p, rows, more) -> None: ...
    def right(p: BlockingPartition, rows) -> None: ...

    with pytest.raises(TypeError, match="takes a Partition"):
        worker.rows(batch=5)(wrong)
    with pytest.raises(TypeError, match="takes other parameters"):
        worker.rows(batch=5)(three)
    with pytest.raises(ValueError, match="batch is 0"):
        worker.rows(batch=0)(right)
    assert worker.rows(batch=5)(right) is right
