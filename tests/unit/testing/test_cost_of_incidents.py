"""The journal's times against the clocks of members that write down when they work.

Each handler writes down, for each partition, when it works on it, several times a second. The
moment in which nobody worked on it any more, and the moment in which somebody did again, are taken
from these notes; the journal's range has to hold the time between the two, but for the time that a
call and a step of the handler take.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from coordinator.client import Member, Partition, Worker
from coordinator.core.values.plan_journal import PlanRecord
from coordinator.core.values.rebalance_journal import (
    OUTAGE_ENDED,
    RETURNED,
    PartitionMove,
    RebalanceRecord,
)
from coordinator.core.values.requests import ListRebalances
from coordinator.observe.explain import explain
from coordinator.testing.engine.clock import EPOCH_NS

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

    def idle_ms(self, partition: int, resumed_ms: int) -> int:
        """Time in which nobody worked on a partition, until somebody did from `resumed_ms` on."""
        after = [at for at, _ in self.of[partition] if at >= resumed_ms]
        before = [at for at, _ in self.of[partition] if at < resumed_ms]
        return min(after) - max(before)


def worker_of(
    notes: Notes, who: str, assignor="cooperative-sticky", slow_s=None, piece_s=1, **settings
) -> Worker:
    """A worker that works on, commits, and writes down when. `piece_s`: of a piece of work;
    `slow_s`: of the last one of a partition that is being given back."""
    settings = {**SETTINGS, **settings}
    worker = Worker("anywhere:1", "g", topics=TOPICS, assignors=(assignor,), **settings)

    @worker.handler(drain="manual")
    async def handle(p: Partition) -> None:
        for offset in range(p.position, 10**6):
            until_s = notes.group.now_s + piece_s
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
    async with Member("anywhere:1", "g", TOPICS, assignors=("range",), **SETTINGS) as member:
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
    return group.coordinator._request(asked).rebalances


def check(group, notes: Notes, record: RebalanceRecord) -> list[PartitionMove]:
    """Compare every move of a record with the notes; returns those that moved."""
    for move in record.moves:
        for some in move.partitions:
            for number in range(some.first, some.last + 1):
                truth_ms = notes.idle_ms(number, move.resumed_at_ms)
                assert move.unowned_ms_min - TOLERANCE_MS <= truth_ms, (move, truth_ms)
                assert truth_ms <= move.unowned_ms_max + TOLERANCE_MS, (move, truth_ms)
    return [move for move in record.moves if move.has_moved]


# --- Session groups ---


def session_worker(notes: Notes, who: str, **settings) -> Worker:
    """A session worker that commits each second, and writes down when it works."""
    worker = Worker("anywhere:1", "g", topics=TOPICS, protocol="session", **settings)

    @worker.handler
    async def handle(p: Partition) -> None:
        for offset in range(p.position, 10**6):
            until_s = notes.group.now_s + 1
            while notes.group.now_s < until_s and not p.revoking.is_set():
                notes.write(p.number, who)
                await asyncio.sleep(STEP_S)
            await p.commit(offset + 1)

    return worker


def plans(group) -> tuple[PlanRecord, ...]:
    """Newest first."""
    asked = ListRebalances(call_id=group.coordinator._call_id(), group_id="g")
    return group.coordinator._request(asked).plans


def check_plan(notes: Notes, plan: PlanRecord, tolerance_ms: int = TOLERANCE_MS) -> list[int]:
    """Compare what stood idle before a plan with the notes; returns how long it was felt."""
    felt = []
    for move in plan.moves:
        if move.stop is None:
            continue
        resumed_ms = move.resumed_by(plan.made_at_ms)
        shortest_ms, longest_ms = move.stop.idle_ms(resumed_ms)
        for first, last in move.partitions:
            for number in range(first, last + 1):
                felt.append(notes.idle_ms(number, resumed_ms))
                assert shortest_ms - tolerance_ms <= felt[-1], (move, felt)
                assert felt[-1] <= longest_ms + tolerance_ms, (move, felt)
    return felt


def numbers_of(record: RebalanceRecord) -> list[int]:
    """Partitions of a record's moves."""
    ranges = [some for move in record.moves for some in move.partitions]
    return [number for some in ranges for number in range(some.first, some.last + 1)]


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
    assert {move.known_by for move in moved} == {"last_seen"}
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


def hanging_worker(notes: Notes, who: str, hangs: dict[str, int], *, commits: bool) -> Worker:
    """A worker that hangs with one of its partitions, once `hangs` has somebody."""
    ends = {"log_ends": lambda keys: dict.fromkeys(keys, 10**6), "log_ends_interval_s": 0.5}
    worker = Worker(
        "anywhere:1", "g", topics=TOPICS, client_id=who, progress_timeout_ms=4_000,
        on_error="release", **SETTINGS, **ends,
    )  # fmt: skip

    @worker.handler
    async def handle(p: Partition) -> None:
        while not p.revoking.is_set():
            if hangs and hangs.setdefault(who, p.number) == p.number:
                await asyncio.sleep(10_000)
            notes.write(p.number, who)
            await (p.commit(p.position + 1) if commits else p.alive())
            await asyncio.sleep(STEP_S)

    return worker


@pytest.mark.parametrize("commits", [True, False])
async def test_two_workers_that_hang_in_one_rebalance(group, commits):
    """One of them begins it, the other hangs in it as well; nobody has told them to stop."""
    notes, hangs = Notes(group), {}
    for name in "ab":
        group.start(hanging_worker(notes, name, hangs, commits=commits), name=name)
    await group.advance(15)
    hangs["nobody"] = -1
    await group.advance(20)
    began_ms = EPOCH_NS // 1_000_000 + 15_000
    newest = [record for record in journal(group) if record.started_at_ms > began_ms]
    moved = [move for record in newest for move in check(group, notes, record)]
    assert sum(move.partition_count for move in moved) == 2
    assert {move.from_client_id for move in moved} == {"a", "b"}
    assert {move.known_by for move in moved} == {"gave_up"}


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


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_an_outage_of_a_classic_group(group, assignor):
    notes = Notes(group)
    for name in "ab":
        group.start(worker_of(notes, name, assignor), name=name)
    await group.advance(12.3)
    group.coordinator.kill()
    await group.advance(18)
    group.coordinator.start()
    await group.advance(15)
    records = [r for r in journal(group) if r.started_at_ms > EPOCH_NS // 1_000_000 + 30_000]
    felt = 0
    for record in records:
        check(group, notes, record)
        for move in record.moves:
            for some in move.partitions:
                felt = max(felt, notes.idle_ms(some.first, move.resumed_at_ms))
    assert felt > 10_000
    assert max(record.unowned_ms_max for record in records) >= felt - TOLERANCE_MS
    stops = [move for record in records for move in record.moves]
    assert {move.known_by for move in stops} == {"said_by_member"}
    assert max(spans(stops)) <= INTERVAL_MS, "the members say when they stopped"
    text = " ".join(explain(records[-1]))
    assert "The group had no coordinator before, for up to 1" in text
    assert "garbage" not in text


async def test_an_outage_in_which_no_member_of_a_classic_group_is_lost(group):
    """Nothing rebalances, and the outage is an entry all the same."""
    notes = Notes(group)
    for name in "ab":
        group.start(worker_of(notes, name, session_timeout_ms=45_000), name=name)
    await group.advance(12.3)
    earlier = journal(group)
    group.coordinator.kill()
    await group.advance(18)
    group.coordinator.start()
    await group.advance(15)
    records, *others = journal(group)
    assert tuple(others) == earlier
    assert (records.cause, records.outcome, records.unowned_partitions) == (
        OUTAGE_ENDED,
        "completed",
        4,
    )
    felt = {}
    for number, written in notes.of.items():
        times = [at for at, _ in written]
        felt[number] = max(b - a for a, b in pairwise(times))
    for move in records.moves:
        for some in move.partitions:
            for number in range(some.first, some.last + 1):
                assert 15_000 < felt[number] <= move.unowned_ms_max + TOLERANCE_MS
                assert move.unowned_ms_min - TOLERANCE_MS <= felt[number]
    assert {move.known_by for move in records.moves} == {"said_by_member"}
    assert max(spans(list(records.moves))) <= INTERVAL_MS, "the members say when they stopped"
    assert "The group had no coordinator before, for up to 1" in " ".join(explain(records))


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("away_s", [8, 18])
@pytest.mark.parametrize("piece_s", [1, 4, 30])
async def test_an_outage_that_ends_the_session_of_one_of_two_members(
    group, assignor, away_s, piece_s
):
    """One is lost and joins again, and the other goes on until it hears of that; one of them has
    pieces of work that may be longer than its session, or than the outage."""
    notes = Notes(group)
    group.start(worker_of(notes, "a", assignor, piece_s=piece_s), name="a")
    group.start(worker_of(notes, "b", assignor, session_timeout_ms=45_000), name="b")
    await group.advance(12.3)
    group.coordinator.kill()
    await group.advance(away_s)
    group.coordinator.start()
    await group.advance(45)
    records = [r for r in journal(group) if r.started_at_ms > EPOCH_NS // 1_000_000 + 13_000]
    assert records
    for record in records:
        check(group, notes, record)
    said = [m for r in records for m in r.moves if m.known_by == "said_by_member"]
    assert said
    assert max(spans(said)) <= INTERVAL_MS


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_a_rolling_restart_of_a_classic_group_with_names(group, assignor):
    """One process is stopped, the other dies: nothing rebalances, and each return is an entry."""
    notes = Notes(group)

    def start(name: str, process: str) -> None:
        worker = worker_of(notes, process, assignor, instance_id=name, client_id=name)
        group.start(worker, name=process)

    start("a", "a")
    start("b", "b")
    await group.advance(12.3)
    earlier = journal(group)
    await group.processes[0].stop()
    await group.advance(1.5)
    start("a", "a2")
    await group.advance(4)
    group.processes[1].kill()
    await group.advance(2.2)
    start("b", "b2")
    await group.advance(5)
    of_b, of_a, *others = journal(group)
    assert tuple(others) == earlier
    for name, told, least_ms in (("a", of_a, 1_500), ("b", of_b, 2_200)):
        assert (told.cause, told.client_id, told.outcome) == (RETURNED, name, "completed")
        assert told.generation_before == told.generation_after == earlier[0].generation_after
        assert (told.unowned_partitions, told.partitions_moved) == (2, 0)
        assert check(group, notes, told) == []
        felt = [notes.idle_ms(n, told.ended_at_ms) for n in numbers_of(told)]
        assert len(felt) == 2
        assert min(felt) >= least_ms
        assert told.unowned_ms_max >= max(felt) - TOLERANCE_MS
        assert "without a rebalance" in explain(told)[0]


async def test_an_outage_of_a_session_group(group):
    notes = Notes(group)
    for name in "ab":
        group.start(session_worker(notes, name), name=name)
    await group.advance(12.3)
    group.coordinator.kill()
    await group.advance(25)
    group.coordinator.start()
    await group.advance(15)
    recorded = [plan for plan in plans(group) if plan.unowned.partitions]
    felt = [each for plan in recorded for each in check_plan(notes, plan)]
    assert len(felt) == 4
    assert max(felt) > 15_000
    assert max(plan.unowned.ms_max for plan in recorded) >= max(felt) - TOLERANCE_MS


async def test_a_rolling_restart_of_a_session_group_with_names(group):
    notes = Notes(group)

    def start(member: str, process: str) -> None:
        named = session_worker(notes, member, member_name=member, return_within_ms=30_000)
        group.start(named, name=process)

    start("a", "a")
    start("b", "b")
    await group.advance(12.3)
    await group.processes[0].stop()
    await group.advance(2)
    start("a", "a2")
    await group.advance(5)
    (record,) = [plan for plan in plans(group) if plan.unowned.partitions]
    felt = check_plan(notes, record)
    assert len(felt) == 2
    assert max(felt) > 2_000
