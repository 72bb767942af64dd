"""Commits of work that began under an earlier holding, at a real coordinator in memory.

Handler A begins, its partition is given back or lost and granted again, B commits 100, and A
commits 7: nothing is sent, and 100 is stored. In both protocols, for every kind of owner.
"""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from coordinator.assignors import TopicPartition
from coordinator.client import BlockingMember, BlockingPartition, Member, Partition, Worker
from coordinator.client.errors import OffsetMismatch, StaleMember
from coordinator.client.member.events import Granted, Lost, MemberEvent
from coordinator.client.member.ledger import Holding

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
TO_THIS_THREAD = "nothing was handed out to this thread"
pytestmark = [
    pytest.mark.virtual_time,
    pytest.mark.parametrize("protocol", ["classic", "session"]),
]


class Play:
    """A group of one member, whose program says when it has begun, and asks for its loss."""

    def __init__(self, group) -> None:
        self.group = group
        self.begun = self.is_done = False

    async def of(self, program, *, loses: bool = False) -> None:
        """Run a program to its end; `loses`: it is cut off once it has begun."""

        def run_in_thread() -> None:
            program()
            self.is_done = True

        async def run() -> None:
            await program()
            self.is_done = True

        is_async = asyncio.iscoroutinefunction(program)
        process = self.group.start(run if is_async else run_in_thread)
        if loses:
            await self.group.until(lambda: self.begun)
            process.cut()
            await self.group.advance(60)
            process.mend()
        await self.group.until(lambda: self.is_done)


@pytest.fixture
def play(virtual_group) -> Play:
    return Play(virtual_group())


@pytest.fixture(params=["given back", "lost"])
def loses(request) -> bool:
    return request.param == "lost"


def granted(events: list[MemberEvent], member) -> Holding | None:
    """The holding of P that events grant; what is lost is given back."""
    for event in events:
        match event:
            case Lost(holdings):
                member.released(holdings)
            case Granted(holdings):
                return holdings[0]
    return None


async def until_granted(member: Member, poll=Member.poll) -> Holding:
    while True:
        found = granted(await poll(member, None), member)
        if found is not None:
            return found


def until_granted_in_thread(member: BlockingMember) -> Holding:
    while True:
        found = granted(member.poll(timeout=None), member)
        if found is not None:
            return found


def shown_by(holding: Holding, shows: bool) -> dict:
    return {"holdings": holding} if shows else {}


async def is_refused(committing, because: str = "") -> None:
    with pytest.raises(StaleMember, match="nothing was sent") as raised:
        await committing
    assert because in str(raised.value)


def is_refused_in_thread(commit, *args, because: str = "", **named) -> None:
    with pytest.raises(StaleMember, match="nothing was sent") as raised:
        commit(*args, **named)
    assert because in str(raised.value)


# --- Tasks ---


async def poll_in_a_task(member: Member, seconds: float | None) -> list[MemberEvent]:
    return await asyncio.create_task(member.poll(seconds))


async def poll_and_be_waited_for(member: Member, seconds: float | None) -> list[MemberEvent]:
    """A task of its own in Python 3.11."""
    return await asyncio.wait_for(member.poll(seconds), 100_000)  # noqa: TID251  # Programs do.


async def poll_by_events(member: Member, seconds: float | None) -> list[MemberEvent]:
    async for event in member.events():
        return [event]
    raise AssertionError("no event")


POLLS = [Member.poll, poll_in_a_task, poll_and_be_waited_for, poll_by_events]


@pytest.mark.parametrize("shows", [False, True], ids=["shows none", "shows its own"])
@pytest.mark.parametrize("poll", POLLS, ids=lambda poll: poll.__name__)
async def test_a_task_that_the_polling_one_has_made(play, protocol, loses, poll, shows):
    async def own() -> None:
        async with Member("anywhere:1", "g", {"t": 1}, protocol=protocol) as member:
            may_commit = asyncio.Event()

            async def handle(holding: Holding, offset: int) -> None:
                if offset == 7:
                    await may_commit.wait()
                await member.commit({P: offset}, **shown_by(holding, shows))

            first = await until_granted(member, poll)
            a = asyncio.create_task(handle(first, 7))
            play.begun = True
            if not loses:
                member.released(first)
            second = await until_granted(member, poll)
            await asyncio.create_task(handle(second, 100))
            may_commit.set()
            await is_refused(a)
            await member.commit({P: 101})
            await member.commit({P: 100}, **shown_by(second, shows))

    await play.of(own, loses=loses)
    assert play.group.committed() == {P: 100}


async def test_a_task_of_one_that_polls_two_members(play, protocol, loses):
    """The last poll before it was made is that of the other member."""

    async def own() -> None:
        async with (
            Member("anywhere:1", "g", {"t": 1}, protocol=protocol) as member,
            Member("anywhere:1", "other", {"t": 1}, protocol=protocol) as other,
        ):
            first = await until_granted(member)
            await until_granted(other)
            may_commit = asyncio.Event()

            async def handle() -> None:
                await may_commit.wait()
                await member.commit({P: 7})

            a = asyncio.create_task(handle())
            play.begun = True
            if not loses:
                member.released(first)
            await until_granted(member)
            await other.poll()
            await asyncio.create_task(member.commit({P: 100}))
            may_commit.set()
            await is_refused(a)

    await play.of(own, loses=loses)
    assert play.group.committed("g") == {P: 100}


async def test_two_tasks_that_poll(play, protocol, loses):
    """Each commits what its own last poll has told."""

    async def own() -> None:
        async with Member("anywhere:1", "g", {"t": 1}, protocol=protocol) as member:
            has_begun, may_commit = asyncio.Event(), asyncio.Event()

            async def early() -> None:
                first = await until_granted(member)
                if not loses:
                    member.released(first)
                has_begun.set()
                await may_commit.wait()
                await is_refused(member.commit({P: 7}))

            async def late() -> None:
                await has_begun.wait()
                play.begun = True
                await until_granted(member)
                await member.commit({P: 100})
                may_commit.set()

            await asyncio.gather(early(), late())

    await play.of(own, loses=loses)
    assert play.group.committed() == {P: 100}


async def test_a_commit_that_is_made_of_a_dead_holding_is_refused_for_all_it_names(play, protocol):
    async def own() -> None:
        async with Member("anywhere:1", "g", {"t": 2}, protocol=protocol) as member:
            while len(member.assignment) < 2:
                await member.poll(None)
            first, stays = member.holding(P), member.holding(Q)
            member.released(first)
            for both in (None, [first, stays]):
                await is_refused(member.commit({P: 7, Q: 7}, holdings=both), "t-0")
            await is_refused(member.commit({P: 7, Q: 7}, holdings=[stays]), "no holding")

    await play.of(own)
    assert play.group.committed() == {}


# --- Threads ---


async def test_threads_over_a_blocking_member(play, protocol, loses):
    """A commit is judged by the context of the thread that calls: that of a new thread has been
    handed out nothing, and `asyncio.to_thread` passes on the one of its caller."""

    def own() -> None:
        with BlockingMember("anywhere:1", "g", {"t": 1}, protocol=protocol) as member:
            other = contextvars.copy_context()  # Not an empty one: virtual time is in it.
            first = until_granted_in_thread(member)
            to_thread = contextvars.copy_context()
            other.run(member.commit, {P: 1}, holdings=first)
            to_thread.run(member.commit, {P: 2})
            is_refused_in_thread(other.run, member.commit, {P: 7}, because=TO_THIS_THREAD)
            play.begun = True
            if not loses:
                member.released(first)
            second = until_granted_in_thread(member)
            other.run(member.commit, {P: 98}, holdings=second)
            contextvars.copy_context().run(member.commit, {P: 99})
            member.commit({P: 100})  # By the thread that polls.
            is_refused_in_thread(member.commit, {P: 7}, holdings=first)
            is_refused_in_thread(other.run, member.commit, {P: 7}, because=TO_THIS_THREAD)
            is_refused_in_thread(other.run, member.commit, {P: 7}, holdings=first)
            is_refused_in_thread(to_thread.run, member.commit, {P: 7})

    await play.of(own, loses=loses)
    assert play.group.committed() == {P: 100}


# --- Workers ---


@pytest.mark.parametrize("is_blocking", [False, True], ids=["coroutine", "thread"])
async def test_work_that_a_handler_has_left_behind(play, protocol, is_blocking):
    """Its handler has returned, or was ended, and the partition was granted again."""
    worker = Worker("anywhere:1", "g", topics={"t": 1}, protocol=protocol, idle_ms=1_000)
    kept, refused = [], []

    def is_first(p) -> bool:
        kept.append(p)
        return len(kept) == 1 or len({one._call.held for one in kept}) == 1

    async def handle(p: Partition) -> None:
        if is_first(p):
            await p.commit(5)
        elif not refused:
            await p.commit(100)
            try:
                await kept[0].commit(7)
            except (StaleMember, asyncio.CancelledError) as error:
                refused.append(error)

    def handle_in_thread(p: BlockingPartition) -> None:
        if is_first(p):
            p.commit(5)
        elif not refused:
            p.commit(100)
            try:
                kept[0].commit(7)
            except BaseException as error:  # noqa: BLE001  # PartitionRevoked is one.
                refused.append(error)

    worker.handler(handle_in_thread if is_blocking else handle)
    process = play.group.start(worker)
    await play.group.until(lambda: kept and play.group.committed() == {P: 5})
    process.cut()
    await play.group.advance(60)
    process.mend()
    await play.group.until(lambda: refused)
    assert play.group.committed() == {P: 100}


# --- What goes on ---


async def test_owners_that_may_commit_without_holdings(play, protocol):
    async def own() -> None:
        async with Member("anywhere:1", "g", {"t": 2}, protocol=protocol) as member:
            has_polled = asyncio.Event()

            async def commit_when_polled() -> None:
                await has_polled.wait()
                await member.commit({Q: 3})

            made_before = asyncio.create_task(commit_when_polled())
            while len(member.assignment) < 2:
                await poll_and_be_waited_for(member, None)
            await member.commit({P: 1})
            has_polled.set()
            await made_before
            await asyncio.gather(member.commit({P: 2}), member.commit({Q: 4}))
            await asyncio.create_task(member.commit({P: 3}))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await member.poll(None)
            await member.commit({P: 4})
            assert await member.poll() == []
            await member.commit({P: 5, Q: 5})

    await play.of(own)
    assert play.group.committed() == {P: 5, Q: 5}


async def test_one_that_polls_by_way_of_helpers_knows_what_they_were_told(play, protocol):
    async def own() -> None:
        async with Member("anywhere:1", "g", {"t": 1}, protocol=protocol) as member:
            member.released(await until_granted(member))
            await asyncio.create_task(until_granted(member))
            await member.commit({P: 100})

    await play.of(own)
    assert play.group.committed() == {P: 100}


async def test_a_commit_without_offsets_counts_for_the_membership(play, protocol):
    async def own() -> None:
        async with Member("anywhere:1", "g", {"t": 1}, protocol=protocol) as member:
            await is_refused(member.commit({}, manifest=b"too early"), "no member")
            first = await until_granted(member)
            await member.commit({}, manifest=b"one")
            member.released(first)
            await member.commit({}, manifest=b"two")
            await until_granted(member)
            await asyncio.create_task(member.commit({}, manifest=b"three"))
            await asyncio.create_task(member.commit({}, manifest=b"four", holdings=[]))

    await play.of(own)
    assert play.group.committed() == {}


async def test_a_batch_that_was_planned_before_the_process_began(play, protocol):
    async def own() -> None:
        async with Member("anywhere:1", "g", {"t": 2}, protocol=protocol) as member:
            assert member.planned_batch({P: -1}) == []
            while len(member.assignment) < 2:
                await member.poll(None)
            begins = {P: -1, Q: -1}
            planned = member.planned_batch(begins)
            assert [held.partition for held in planned] == [P, Q]
            await member.commit({P: 5, Q: 6}, expected=begins, holdings=planned)
            with pytest.raises(OffsetMismatch):
                await member.commit({P: 4, Q: 4}, expected=begins, holdings=planned)
            member.released(member.holding(P))
            await is_refused(member.commit({P: 7}, expected={P: 5}, holdings=planned))
            assert [held.partition for held in member.planned_batch({P: 5, Q: 6})] == [Q]

    await play.of(own)
    assert play.group.committed() == {P: 5, Q: 6}
