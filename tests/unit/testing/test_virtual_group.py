"""Members and workers in a virtual group: faults, the clock, what can be asserted, mistakes."""

import asyncio
import functools
import threading
import time

import pytest

from coordinator.client import BlockingMember, Granted, Member
from coordinator.operator.admin import GroupAdmin
from coordinator.settings import InvalidSetting
from coordinator.testing.loop import NotOnVirtualTime
from coordinator.testing.running import VirtualTest
from tests.unit.testing.programs import TOPICS, made, once_a_second, own, own_in_thread, three_rows

PROGRAMS = {
    "member": lambda: functools.partial(own, {}),
    "member-thread": lambda: functools.partial(own_in_thread, {}),
    "worker": lambda: made(once_a_second),
    "worker-threads": lambda: made(three_rows, idle_ms=4_000),
    "classic-worker": lambda: made(once_a_second, protocol="classic"),
}


@pytest.fixture(params=PROGRAMS.values(), ids=PROGRAMS)
def two(request, virtual_group):
    """A group with two processes, `a` and `b`."""
    group, program = virtual_group(), request.param()
    a, b = (group.start(program, name=name) for name in "ab")
    return group, a, b


def names(group):
    return sorted(set(group.owners().values()))


def stuck(group, before):
    """Owners of partitions whose offset has not changed."""
    return {group.owners()[p] for p, offset in group.committed().items() if offset == before[p]}


async def test_a_group_is_shown_with_its_time_and_processes(two):
    group, _, b = two
    await group.advance(1.5)
    b.kill()
    assert repr(group) == "<VirtualGroup now_s=1.5 a=running b=ended>"


async def test_both_own_partitions_and_commit(two, virtual_group):
    group, _, _ = two
    await group.advance(45)
    assert sorted(group.owners().values()) == list("aabb")
    assert list(group.committed()) == [("invoices", n) for n in range(4)]
    assert min(group.committed().values()) > 20
    assert group.now_s == 45


async def test_partitions_of_a_killed_process_move_when_its_session_has_ended(two, virtual_group):
    group, a, b = two
    await group.advance(20)
    b.kill()
    assert not b.is_running
    await group.advance(5)
    assert names(group) == ["a", "b"]
    await group.advance(55)
    assert names(group) == ["a"]
    b.start()
    await group.advance(20)
    assert names(group) == ["a", "b"]
    assert a.is_running


async def test_one_that_stops_gives_its_partitions_up_at_once(two, virtual_group):
    group, _, b = two
    await group.advance(20)
    await b.stop()
    await group.advance(4)
    assert names(group) == ["a"]
    assert b.error is None


async def test_one_that_is_cut_off_loses_its_partitions_and_gets_some_again(two, virtual_group):
    group, a, _ = two
    await group.advance(20)
    a.cut()
    await group.advance(60)
    assert names(group) == ["b"]
    a.mend()
    await group.advance(60)
    assert names(group) == ["a", "b"]


async def test_one_that_is_paused_loses_its_partitions(two, virtual_group):
    group, a, _ = two
    await group.advance(20)
    a.pause()
    await group.advance(60)
    assert names(group) == ["b"]
    a.resume()
    await group.advance(20)
    assert names(group) == ["a", "b"]


async def test_paused_handlers_keep_their_partitions_and_go_on_later(two, virtual_group):
    group, a, _ = two
    await group.advance(20)
    a.pause(heartbeats=True)
    await group.advance(2)  # Commits that were under way arrive.
    before = group.committed()
    await group.advance(60)
    assert names(group) == ["a", "b"]
    assert stuck(group, before) == {"a"}
    a.resume()
    await group.advance(10)
    assert stuck(group, before) == set()


async def test_an_owner_that_is_busy_for_too_long_leaves_while_its_heartbeats_go_on(virtual_group):
    group = virtual_group()

    async def busy():
        async with Member(group.address, "billing", TOPICS) as member:
            await member.poll(timeout=20)
            await asyncio.sleep(10**6)

    busy_one = group.start(busy, name="busy")
    await group.advance(30)
    busy_one.pause(heartbeats=True)
    await group.advance(200)
    assert names(group) == ["busy"]
    await group.advance(200)
    assert names(group) == []


async def test_a_paused_thread_goes_on_when_it_is_resumed(virtual_group):
    group, rows = virtual_group(), {}
    one = group.start(own_in_thread, rows)
    await group.advance(20)
    one.pause(heartbeats=True)
    before = dict(rows)
    await group.advance(100)
    assert rows == before
    one.resume()
    await group.advance(10)
    assert rows != before


async def test_messages_can_be_slow(virtual_group):
    group, rows = virtual_group(), {}
    one = group.start(own, rows)
    one.delay(2)
    await group.advance(3)
    assert group.coordinator.group_ids() == []  # Discovery takes four seconds.
    await group.advance(30)
    assert names(group) == [one.name]


async def test_the_coordinator_can_be_killed_and_keeps_what_was_committed(two, virtual_group):
    group, _, _ = two
    await group.advance(20)
    group.coordinator.kill()
    with pytest.raises(RuntimeError, match=r"coordinator\.start"):
        group.owners()
    await group.advance(5)
    group.coordinator.start()
    await group.advance(60)
    assert names(group) == ["a", "b"]
    before = group.committed()
    await group.advance(10)
    assert stuck(group, before) == set()


async def test_clocks_of_processes_may_go_wrong(virtual_group):
    group, seen = virtual_group(), []

    async def look():
        seen.append(asyncio.get_running_loop().time())
        await asyncio.sleep(10)
        seen.append(asyncio.get_running_loop().time())

    one = group.start(look)
    one.clock.drift_ppm = 100_000  # A tenth too fast.
    await group.advance(9)
    assert one.is_running
    await group.advance(1)
    assert not one.is_running
    assert seen[1] - seen[0] == pytest.approx(10)


async def test_members_of_the_test_itself_belong_to_the_group(virtual_group):
    group = virtual_group(group_initial_rebalance_delay_ms=0)
    async with Member("anywhere:1", "g", {"t": 1}) as member:
        events = await member.poll(timeout=5)
        assert [type(event) for event in events] == [Granted]
        await member.commit({("t", 0): 5})
        assert group.committed() == {("t", 0): 5}
        assert group.owners() == {("t", 0): "the test"}


async def test_until_waits_no_longer_than_it_must(two, virtual_group):
    group, _, _ = two
    await group.until(lambda: group.coordinator.group_ids() and group.owners())
    assert group.now_s < 10
    with pytest.raises(AssertionError, match="does not hold after 30 s"):
        await group.until(lambda: False, within_s=30)


@pytest.mark.parametrize(
    ("protocol", "lines"),
    [
        ("classic", "JoinGroup to coordinator:7400: NONE, generation 2"),
        ("session", "cause=<EndCause.LEASE_EXPIRED"),
    ],
)
def test_a_run_is_the_same_each_time(protocol, lines):
    async def killed(test):
        group = test()
        for _ in range(3):
            group.start(made(once_a_second, protocol=protocol))
        await group.advance(20)
        group.processes[0].kill()
        await group.advance(60)

    def transcript():
        test = VirtualTest()
        try:
            test.run(killed, test)
            return test.group.transcript()
        finally:
            test.close()

    first = transcript()
    assert first == transcript()
    assert lines in first
    assert "times more" in first


# --- Mistakes ---


async def test_errors_of_processes_come_out_of_advance(virtual_group):
    group = virtual_group()

    async def fail():
        await asyncio.sleep(3)
        raise LookupError("no such row")

    def fail_in_thread():
        raise LookupError("no such row")

    for function in (fail, fail_in_thread):
        process = group.start(function)
        with pytest.raises(LookupError, match="no such row"):
            await group.advance(5)
        assert isinstance(process.error, LookupError)
    group.start(fail_in_thread)
    group.start(fail_in_thread)
    with pytest.raises(ExceptionGroup) as raised:
        await group.advance(5)
    assert len(raised.value.exceptions) == 2


async def test_real_io_is_refused_even_if_the_handler_hides_it(virtual_group):
    group = virtual_group()

    async def connects():
        try:
            await asyncio.open_connection("127.0.0.1", 1)
        except NotImplementedError:
            return

    group.start(connects)
    with pytest.raises(NotOnVirtualTime, match="has no sockets: put a fake in the place"):
        await group.advance(1)


async def test_an_advance_that_is_not_awaited_is_told(virtual_group):
    group = virtual_group()
    await group.advance(0)
    group.advance(45)
    with pytest.raises(RuntimeError, match=r"write `await group\.advance"):
        group.committed("g")


async def test_what_cannot_be_started_is_told(virtual_group):
    group = virtual_group()
    with pytest.raises(TypeError, match=r"group\.start\(run, 3\)"):
        group.start(own({}))
    with pytest.raises(TypeError, match="a worker or a function is started, not 3"):
        group.start(3)
    group.start(own, {}, name="a")
    with pytest.raises(ValueError, match="the name 'a'"):
        group.start(own, {}, name="a")
    with pytest.raises(RuntimeError, match="a is running"):
        group.processes[0].start()


async def test_groups_that_are_not_there_are_told(virtual_group):
    group = virtual_group()
    await group.advance(0)
    with pytest.raises(LookupError, match="no group yet"):
        group.owners()
    group.start(own, {})
    await group.advance(20)
    with pytest.raises(LookupError, match="no group 'bilings', but billing"):
        group.owners("bilings")
    async with Member(group.address, "other", TOPICS):
        await group.advance(10)
        with pytest.raises(LookupError, match="billing, other"):
            group.owners()


async def test_a_test_has_one_group_and_settings_are_checked(virtual_group):
    with pytest.raises(AttributeError, match=r"group = virtual_group\(\), then group\.start"):
        virtual_group.start(own, {})
    with pytest.raises(InvalidSetting, match="shards"):
        virtual_group(shard=3)
    virtual_group(shards=3)
    with pytest.raises(RuntimeError, match="one virtual group"):
        virtual_group()


async def test_a_blocking_call_on_the_loop_is_told(virtual_group):
    virtual_group()
    member = BlockingMember("anywhere:1", "billing", TOPICS)
    with pytest.raises(RuntimeError, match=r"group\.start\(function\)"):
        member.start()


async def test_time_does_not_go_back(virtual_group):
    group = virtual_group()
    with pytest.raises(ValueError, match="does not go back"):
        await group.advance(-1)


async def test_blocking_admin_clients_are_refused(virtual_group):
    group = virtual_group()
    with pytest.raises(RuntimeError, match="coordinator_server"):
        GroupAdmin(group.address).list_groups()


async def test_the_threads_of_a_test_end_with_it(virtual_group):
    group = virtual_group()
    ended = threading.Event()

    def work():
        try:
            own_in_thread({})
        finally:
            ended.set()

    one = group.start(work)
    await group.advance(20)
    one.kill()
    await group.advance(20)
    assert not ended.is_set()  # As after SIGKILL, nothing of it has run.
    virtual_group.close = after(virtual_group.close, lambda: ended.is_set() or pytest.fail("runs"))


def after(function, then):
    def both():
        function()
        then()

    return both


async def test_forty_five_seconds_need_few_turns_of_the_loop(two, virtual_group):
    group, _, _ = two
    await group.advance(20)
    rounds = 0
    run_round = group.loop._run_round

    def counted():
        nonlocal rounds
        rounds += 1
        run_round()

    group.loop._run_round = counted
    await group.advance(45)
    assert rounds < 5_000


async def test_real_time_in_a_thread_is_waited_for(virtual_group):
    group, seen = virtual_group(), []
    gate = threading.Event()

    def work():
        gate.wait()
        seen.append(group.now_s)

    group.start(work)
    opener = threading.Timer(0, gate.set)
    opener.start()
    await group.advance(45)
    opener.join()
    assert seen == [0]
    assert time.time() > 1.7e9
