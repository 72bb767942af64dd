"""The journal's times against the clocks of members that write down when they work.

Each handler writes down, for each partition, when it works on it, several times a second. The
moment in which nobody worked on it any more, and the moment in which somebody did again, are taken
from these notes; the journal's range has to hold the time between the two, but for the time that a
call and a step of the handler take.
"""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import GroupMember, Partition, Worker
from coordinator.core.records import PartitionMove, RebalanceRecord
from coordinator.core.requests import ListRebalances
from coordinator.simulate.clock import EPOCH_NS

TOPIC = "invoices"
TOPICS = {TOPIC: 4}
STEP_S = 0.05
TOLERANCE_MS = 100
INTERVAL_MS = 1_000
SETTINGS = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": INTERVAL_MS}


class Notes:
    """Times at which processes worked: (milliseconds since the epoch, process) by partition."""

    def __init__(self, group) -> None:
        self.group = group
        self.of: dict[int, list[tuple[int, str]]] = {}

    def write(self, partition: int, who: str) -> None:
        now_ms = EPOCH_NS // 1_000_000 + round(self.group.now_s * 1_000)
        self.of.setdefault(partition, []).append((now_ms, who))

    def rest(self, partition: int, resumed_ms: int) -> int:
        """Time in which nobody worked on a partition, until somebody did from `resumed_ms` on."""
        after = [at for at, _ in self.of[partition] if at >= resumed_ms]
        before = [at for at, _ in self.of[partition] if at < resumed_ms]
        return min(after) - max(before)


def worker_of(notes: Notes, who: str, assignor: str = "cooperative-sticky", slow_s=None) -> Worker:
    """A worker that works on, commits, and writes down when. `slow_s`: of the last piece of work of
    a partition that is being given back."""
    worker = Worker("anywhere:1", "g", topics=TOPICS, assignors=(assignor,), **SETTINGS)

    @worker.handler(drain="manual")
    async def handle(p: Partition) -> None:
        for offset in range(p.position, 10**6):
            until_s = notes.group.now_s + 1
            while notes.group.now_s < until_s:
                notes.write(p.number, who)
                await asyncio.sleep(STEP_S)
                if p.revoking.is_set():
                    break
            if p.revoking.is_set():
                until_s = notes.group.now_s + (slow_s or {}).get(p.number, 0)
                while notes.group.now_s < until_s:
                    notes.write(p.number, who)
                    await asyncio.sleep(STEP_S)
                await p.commit(offset + 1)
                return
            await p.commit(offset + 1)

    return worker


async def polling_member(notes: Notes, who: str, slow: dict[str, float]) -> None:
    """An eager member that polls between pieces of work; `slow`: seconds of its pieces."""
    async with GroupMember("anywhere:1", "g", TOPICS, assignors=("range",), **SETTINGS) as member:
        while True:
            await member.poll(timeout=0.01)
            until_s = notes.group.now_s + slow.get(who, STEP_S)
            while notes.group.now_s < until_s:
                for partition in member.assignment:
                    notes.write(partition.partition, who)
                await asyncio.sleep(STEP_S)


def journal(group) -> tuple[RebalanceRecord, ...]:
    """Newest first."""
    asked = ListRebalances(call_id=group.coordinator._call_id(), group_id="g")
    return group.coordinator._ask(asked).rebalances


def check(group, notes: Notes, record: RebalanceRecord) -> list[PartitionMove]:
    """Compare every move of a record with the notes; returns those that moved."""
    for move in record.moves:
        for some in move.partitions:
            for number in range(some.first, some.last + 1):
                truth_ms = notes.rest(number, move.resumed_at_ms)
                assert move.unowned_ms_min - TOLERANCE_MS <= truth_ms, (move, truth_ms)
                assert truth_ms <= move.unowned_ms_max + TOLERANCE_MS, (move, truth_ms)
    return [move for move in record.moves if move.has_moved]


@pytest.fixture
def group(virtual_group):
    return virtual_group(group_rebalance_journal=True)


def spans(moves: list[PartitionMove]) -> list[int]:
    """Widths of the ranges."""
    return [move.unowned_ms_max - move.unowned_ms_min for move in moves]


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("killed_at_s", [12.0, 12.45, 12.9])
async def test_a_kill(group, assignor, killed_at_s):
    notes = Notes(group)
    _, b = (group.start(worker_of(notes, name, assignor), name=name) for name in "ab")
    await group.advance(killed_at_s)
    b.kill()
    await group.advance(8)
    newest = journal(group)[0]
    moved = check(group, notes, newest)
    assert sum(move.partition_count for move in moved) == 2
    assert {move.known_by for move in moved} == {"last_heard"}
    assert max(spans(moved)) <= INTERVAL_MS
    assert newest.unowned_ms_max > 6_000 - INTERVAL_MS


async def test_a_pause(group):
    notes = Notes(group)
    _, b = (group.start(worker_of(notes, name), name=name) for name in "ab")
    await group.advance(12.3)
    b.pause()
    await group.advance(8)
    newest = journal(group)[0]
    moved = check(group, notes, newest)
    assert sum(move.partition_count for move in moved) == 2
    assert max(spans(moved)) <= INTERVAL_MS
    b.resume()
    await group.advance(10)


async def test_a_slow_handler_of_an_eager_member(group):
    notes, slow = Notes(group), {}
    for name in "ab":
        group.start(polling_member, notes, name, slow, name=name)
    await group.advance(12)
    slow["b"] = 4.0
    await group.advance(3)
    group.start(polling_member, notes, "c", slow, name="c")
    await group.advance(6)
    newest = journal(group)[0]
    assert newest.ended_at_ms - newest.started_at_ms > 900
    check(group, notes, newest)
    assert newest.unowned_partitions == 4


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_a_leave_of_a_worker_that_drains(group, assignor):
    """Its partitions end one after the other, the last after four seconds."""
    notes, names = Notes(group), "abc"
    slow_s = {number: number + 1.0 for number in range(4)}
    for name in names:
        group.start(worker_of(notes, name, assignor, slow_s), name=name)
    await group.advance(15)
    await group.processes[0].stop()
    await group.advance(10)
    records = [r for r in journal(group) if r.started_at_ms > EPOCH_NS // 1_000_000 + 15_000]
    moved = [move for record in records for move in check(group, notes, record)]
    assert {move.known_by for move in moved} & {"left", "rejoined"}


async def test_a_leave_of_a_member(group):
    notes = Notes(group)
    for name in "ab":
        group.start(polling_member, notes, name, {}, name=name)
    await group.advance(12)
    await group.processes[1].stop()
    await group.advance(5)
    moved = check(group, notes, journal(group)[0])
    assert [move.known_by for move in moved] == ["left"]
    assert spans(moved) == [0]


async def test_a_cooperative_move(group):
    notes, slow_s = Notes(group), dict.fromkeys(range(4), 1.5)
    _, _ = (group.start(worker_of(notes, name, slow_s=slow_s), name=name) for name in "ab")
    await group.advance(12)
    group.start(worker_of(notes, "c", slow_s=slow_s), name="c")
    await group.advance(8)
    second, first = journal(group)[:2]
    assert (first.cooperative_round, second.cooperative_round) == (1, 2)
    assert first.partitions_taken_away == 1
    check(group, notes, first)
    (move,) = check(group, notes, second)
    assert (move.known_by, move.to_client_id) == ("taken_away", move.from_client_id)
