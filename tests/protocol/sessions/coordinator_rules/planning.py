"""Plans: shares, and the windows in which they are made."""

from __future__ import annotations

import asyncio

from tests.kit.session_member import DRAIN
from tests.protocol.sessions.coordinator_rules.group import GroupTrial
from tests.protocol.sessions.rules import Cases

cases: Cases[GroupTrial] = Cases()


@cases("7")
async def fewest_moves(group: GroupTrial) -> None:
    """A second member of 4 gets 2; a third of 6 gets one from each. Nothing else moves."""
    a = await group.alone(6)
    a.releases = True
    b = group.member("w-b", 6)
    b.releases = True
    await b.attached()
    await group.until(lambda: len(b.active) == 3, "the second one has three")
    kept = dict(a.held), dict(b.held)
    c = await group.attached("w-c", 6)
    await group.until(lambda: len(c.active) == 2, "the third one has two")
    await a.beat_and_hear()
    await b.beat_and_hear()
    group.check(len(a.active) == len(b.active) == 2, "one from each")
    for member, before in zip((a, b), kept, strict=True):
        group.check(all(before[p] == token for p, token in member.held.items()), "no other moved")


@cases("7")
async def capacity_of_zero(group: GroupTrial) -> None:
    """Capacity 0 receives nothing, and keeps what it holds."""
    a, b = await group.pair()
    mine = a.active
    a.fields["capacity"] = 0.0
    await a.attached()
    group.check(a.active == mine, "it keeps what it holds")
    await b.send_leave("NOW")
    await asyncio.sleep(0.5)
    await a.beat_and_hear()
    group.check(a.active == mine, "it receives nothing")


@cases("7")
async def capacity_of_zero_says_why(group: GroupTrial) -> None:
    """A member of capacity 0 that has nothing is told why."""
    a = await group.attached("w-a", 2, capacity=0.0)
    await asyncio.sleep(0.3)
    await a.send_beat(whole=True)
    await group.until(lambda: a.all_orders[-1].HasField("answers"), "the whole has come")
    group.check(not a.orders, "it has nothing")
    group.check("capacity" in a.all_orders[-1].why, f"why says so: {a.all_orders[-1].why!r}")


@cases("7")
async def more_members_than_partitions(group: GroupTrial) -> None:
    """A member for which a plan has nothing is told so, and that it need not wait."""
    members = [await group.attached(f"w-{name}", 1) for name in "abc"]

    def are_told() -> bool:
        return all(m.active or m.all_orders[-1].why == "nothing free" for m in members)

    await group.until(are_told, "each has the partition, or knows that none is left")
    group.check(sum(len(m.active) for m in members) == 1, "one has it")


@cases("7")
async def at_most_so_many(group: GroupTrial) -> None:
    """`max_partitions` is hard; what has no room is free until a member comes."""
    a = await group.attached("w-a", 5, max_partitions=2)
    b = await group.attached("w-b", 5, max_partitions=2)
    await group.until(lambda: len(a.active) == len(b.active) == 2, "each has its most")
    c = await group.attached("w-c", 5)
    await group.until(lambda: bool(c.active), "a third one has the rest")
    await a.beat_and_hear()
    await b.beat_and_hear()
    group.check(max(len(a.active), len(b.active)) <= 2, "nobody has more than its most")


@cases("7")
async def by_capacity(group: GroupTrial) -> None:
    """Shares are by capacity."""
    a = group.member("w-a", 8, capacity=3.0)
    b = group.member("w-b", 8, capacity=1.0)
    a.releases = b.releases = True
    await asyncio.gather(a.attached(), b.attached())
    await group.until(
        lambda: (len(a.active), len(b.active)) == (6, 2), "three times the capacity, three times"
    )


@cases("3")
async def no_longer_declared(group: GroupTrial) -> None:
    """A topic that shrinks in all declarations lets its surplus go: DRAIN, for nobody."""
    a = await group.alone(4)
    a.partitions = 2
    await a.attached()
    await group.until(lambda: a.with_order(DRAIN) == [2, 3], "the surplus is to be drained")
    for partition in (2, 3):
        await a.send_ack(partition)
    await asyncio.sleep(0.5)
    await a.beat_and_hear()
    group.check(a.active == [0, 1], "it keeps the rest, and gets the surplus no more")


@cases("3")
async def only_what_is_declared(group: GroupTrial) -> None:
    """A partition is given only to members that declare it."""
    a = await group.alone(4)
    a.releases = True
    b = await group.attached("w-b", 1)
    await group.until(lambda: b.active == [0], "the other one has the one that it declares")
    await asyncio.sleep(0.4)
    await a.beat_and_hear()
    group.check(a.active == [1, 2, 3], "the rest stays")


@cases("3")
async def topic_that_grows(group: GroupTrial) -> None:
    """A topic that grows in a declaration: the new partitions are granted, the others stay."""
    a = await group.alone(2)
    old = dict(a.held)
    a.partitions = 4
    await a.attached()
    await group.until(lambda: a.active == [0, 1, 2, 3], "the new ones are granted")
    group.check(all(a.held[p] == old[p] for p in old), "the others keep their tokens")


@cases("7")
async def joins_are_gathered(group: GroupTrial) -> None:
    """Arrivals wait until none has come for `join_quiet_ms`; a free partition has them planned
    along at once."""
    group.policy.join_quiet_ms = 2_000
    a = await group.alone(4)
    a.releases = True
    began_s = asyncio.get_running_loop().time()
    b = await group.attached("w-b", 4)
    await group.until(lambda: len(b.active) == 2, "it has its share")
    took_s = asyncio.get_running_loop().time() - began_s
    group.check(took_s >= 2.0 - 0.01, f"not before it was quiet: {took_s:.2f} s")


@cases("7")
async def a_free_partition_waits_for_nobody(group: GroupTrial) -> None:
    """A partition that is free is planned after the window, whatever else waits."""
    group.policy.join_quiet_ms = 20_000
    group.policy.join_window_ms = 40_000
    group.policy.plan_interval_ms = 20_000
    a, b = await group.pair()
    await group.attached("w-c", 3)
    began_s = asyncio.get_running_loop().time()
    await a.send_leave("NOW")
    await group.until(
        lambda: sum(len(m.active) for m in group.members if m is not a) == 3,
        "others have its partitions",
    )
    took_s = asyncio.get_running_loop().time() - began_s
    group.check(took_s < 10, f"after the window: {took_s:.2f} s")
    group.check(len(b.active) >= 1, "nobody lost anything")


@cases("7")
async def first_members_wait(group: GroupTrial) -> None:
    """The first plan of an empty group waits `initial_delay_ms`, or for `expected_members`."""
    group.policy.initial_delay_ms = 20_000
    group.policy.expected_members = 2
    began_s = asyncio.get_running_loop().time()
    a = await group.attached("w-a", 2)
    await asyncio.sleep(0.5)
    await a.beat_and_hear()
    group.check(not a.orders, "one of two expected members: no plan")
    b = await group.attached("w-b", 2)
    await group.until(lambda: len(a.active) == len(b.active) == 1, "both: the plan")
    took_s = asyncio.get_running_loop().time() - began_s
    group.check(took_s < 15, f"it did not wait for the delay: {took_s:.2f} s")
