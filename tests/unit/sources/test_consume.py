"""`consume` on virtual time: its end, a crash, logs that grow, a group that does nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from coordinator.client import BlockingMember, Worker
from coordinator.sources import GroupReadable, NothingFound
from coordinator.sources.group import Stalled, consume
from coordinator.sources.group.measures import topics_of_source

GROUP, TOPIC = "g", "t"
MEMBER = {"assignors": "cooperative-sticky", "max_poll_interval_ms": 60_000}


@dataclass(frozen=True)
class Batch:
    rows: range

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    def to_pylist(self) -> list[int]:
        return list(self.rows)


@dataclass
class Log(GroupReadable):
    """A source of two partitions whose rows are their own offsets, in batches of two."""

    ends: list[int]
    topic: str = TOPIC
    reads: list[tuple[int, int, int]] = field(default_factory=list)

    def partitions(self):
        return range(len(self.ends))

    def begin_offset(self, partition):
        return 0

    def end_offset(self, partition):
        return self.ends[partition]

    def read(self, partition, begin, end):
        self.reads.append((partition, begin, end))
        for first in range(begin, end, 2):
            yield Batch(range(first, min(first + 2, end)))


@dataclass
class Store:
    """`Work` that sums rows and stores the sums by partition and offset, as a database would."""

    sums: dict[tuple[int, int], int] = field(default_factory=dict)
    resumed: list[tuple[int, int]] = field(default_factory=list)
    _now: dict[int, int] = field(default_factory=dict)

    def resume(self, partition, offset):
        self.resumed.append((partition, offset))
        self._now[partition] = self.sums[partition, offset] if offset else 0

    def add(self, partition, batch):
        self._now[partition] += sum(batch.rows)

    def store(self, partition, offset):
        self.sums[partition, offset] = self._now[partition]


def consumer(log, work, summaries, **settings):
    """A program that consumes a log."""

    def run():
        topics = {TOPIC: len(log.ends)}
        with BlockingMember("a:1", GROUP, topics, **MEMBER) as member:
            summaries.append(consume(member, log, work, rows_per_commit=3, **settings))

    return run


async def test_all_is_done_once_and_told(virtual_group):
    group, log, store, summaries = virtual_group(), Log([10, 4]), Store(), []
    group.start(consumer(log, store, summaries))
    await group.advance(20)
    (summary,) = summaries
    assert (summary.rows, summary.commits, summary.rebalances) == (14, 4 + 2, 1)
    assert summary.member_id
    assert group.committed() == {(TOPIC, 0): 10, (TOPIC, 1): 4}
    assert sorted(store.resumed) == [(0, 0), (1, 0)]
    assert (store.sums[0, 10], store.sums[1, 4]) == (sum(range(10)), sum(range(4)))
    assert [p for p, *_ in log.reads[:4]] == [0, 1, 0, 1], "partitions take turns"


async def test_what_a_killed_worker_has_not_committed_is_done_again_by_the_other(virtual_group):
    group, log, store, summaries = virtual_group(), Log([90, 90]), Store(), []
    first = group.start(consumer(log, store, summaries, pause_s=1.0))
    second = group.start(consumer(log, store, summaries, pause_s=1.0))
    await group.until(lambda: min(group.committed().values(), default=0) > 9)
    assert set(group.owners().values()) == {first.name, second.name}
    first.kill()
    await group.advance(120)
    (summary,) = summaries
    assert group.committed() == {(TOPIC, 0): 90, (TOPIC, 1): 90}
    assert [store.sums[p, 90] for p in (0, 1)] == [sum(range(90))] * 2
    assert 90 < summary.rows < 180


async def test_a_worker_whose_group_commits_nothing_has_stalled(virtual_group):
    group, log = virtual_group(), Log([3, 3])

    def idles():
        with BlockingMember("a:1", GROUP, {TOPIC: 2}, **MEMBER) as member:
            while True:
                member.poll(timeout=1.0)

    group.start(idles)
    await group.advance(10)
    group.start(consumer(log, Store(), [], progress_timeout_s=60.0))
    await group.advance(50)
    assert sum(group.committed().values()) == 3, "the other one has a partition"
    with pytest.raises(Stalled, match="no commit in the group for 60 s"):
        await group.advance(30)


async def test_a_log_that_grows_is_followed_for_ever(virtual_group):
    group, log, store = virtual_group(), Log([2, 2]), Store()
    process = group.start(consumer(log, store, [], forever=True))
    await group.advance(10)
    assert group.committed() == {(TOPIC, 0): 2, (TOPIC, 1): 2}
    log.ends[1] = 7
    await group.advance(1)
    assert group.committed() == {(TOPIC, 0): 2, (TOPIC, 1): 7}
    assert store.sums[1, 7] == sum(range(7))
    assert sorted(store.resumed) == [(0, 0), (1, 0)]
    await group.advance(100)
    assert process.is_running
    assert set(group.owners().values()) == {process.name}, "waiting is progress"


async def test_partitions_that_appear_are_found_within_the_interval_and_shared_out(virtual_group):
    group, log, store = virtual_group(), Log([2, 2]), Store()
    settings = {"forever": True, "topics_refresh_ms": 5_000}
    both = [group.start(consumer(log, store, [], **settings)) for _ in range(2)]
    await group.advance(10)
    log.ends += [5, 1]
    await group.advance(10)
    assert group.committed() == {(TOPIC, 0): 2, (TOPIC, 1): 2, (TOPIC, 2): 5, (TOPIC, 3): 1}
    assert store.sums[2, 5] == sum(range(5))
    owners = list(group.owners().values())
    assert [owners.count(process.name) for process in both] == [2, 2]


def test_a_partition_that_vanishes_stays_with_its_owner():
    log = Log([2, 2])
    count = topics_of_source(log)
    assert count() == {TOPIC: 2}
    log.ends.append(5)
    assert count() == {TOPIC: 3}
    log.ends.clear()
    assert count() == {TOPIC: 3}, "it is the owner who finds that the rows are gone"
    with pytest.raises(NothingFound):
        topics_of_source(log)()


async def test_a_run_with_an_end_reads_what_appears_for_others_and_does_not_wait_for_it(
    virtual_group,
):
    group, log, store, summaries = virtual_group(), Log([30, 30]), Store(), []
    settings = {"pause_s": 1.0, "topics_refresh_ms": 2_000}
    group.start(consumer(log, store, summaries, **settings))
    await group.advance(6)
    log.ends += [3]
    await group.advance(6)
    assert group.committed()[TOPIC, 2] == 3
    log.ends += [3_000]
    await group.advance(60)
    (summary,) = summaries
    assert group.committed()[TOPIC, 0] == group.committed()[TOPIC, 1] == 30
    assert group.committed().get((TOPIC, 3), 0) < 3_000
    assert summary.rows >= 63


async def test_a_member_that_was_told_more_partitions_than_there_are_keeps_them(virtual_group):
    group, log = virtual_group(), Log([2, 2, 0, 0])

    def run():
        with BlockingMember("a:1", GROUP, {TOPIC: 4}, **MEMBER) as member:
            consume(member, log, Store(), forever=True, topics_refresh_ms=1_000)

    log.partitions = lambda: range(2)
    group.start(run)
    await group.advance(20)
    assert len(group.owners()) == 4


async def test_an_error_of_the_work_is_raised_and_the_other_partition_is_stored(virtual_group):
    group, log, store = virtual_group(), Log([9, 9]), Store()

    class Failing(Store):
        def add(self, partition, batch):
            if partition == 1 and 4 in batch.rows:
                raise OSError("the disk is full")
            super().add(partition, batch)

    group.start(consumer(log, Failing(store.sums), []))
    with pytest.raises(OSError, match="the disk is full"):
        await group.advance(10)
    committed = group.committed()
    assert committed[TOPIC, 1] == 3
    assert (0, committed[TOPIC, 0]) in store.sums, "what is committed is stored"


async def test_consume_does_not_block_an_event_loop():
    with pytest.raises(RuntimeError, match=r"await asyncio\.to_thread\(consume"):
        consume(None, Log([1]), Store())


@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_a_handler_of_rows_reads_and_commits_list_by_list(virtual_group, colour):
    group, log, seen = virtual_group(), Log([5, 0]), []
    worker = Worker("a:1", GROUP, source=log)

    if colour == "thread":
        worker.rows(batch=2)(seen.append)
    else:

        @worker.rows(batch=2)
        async def handle(rows):
            seen.append(rows)

    group.start(worker)
    await group.advance(10)
    log.ends[0] = 6
    await group.advance(10)
    assert seen == [[0, 1], [2, 3], [4], [5]]
    assert group.committed() == {(TOPIC, 0): 6}
