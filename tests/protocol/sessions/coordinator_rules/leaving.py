"""Leave, names, and processes that come back."""

from __future__ import annotations

import asyncio

from coordinator.v1 import session_pb2 as pb
from tests.kit.session_member import DRAIN, LOST
from tests.protocol.sessions.coordinator_rules.group import GroupTrial
from tests.protocol.sessions.coordinator_rules.member import TrialMember
from tests.protocol.sessions.rules import Cases

cases: Cases[GroupTrial] = Cases()
FOREVER_MS = 300_000


def _next(group: GroupTrial, old: TrialMember, **fields: object) -> TrialMember:
    """A new process under the name of an old one."""
    member = group.member(old.name, old.partitions, **fields)
    member.started_at_ms = old.started_at_ms + 1_000
    return member


@cases("5")
async def leave_now(group: GroupTrial) -> None:
    """Leave(NOW): GoAway(LEFT), and the partitions are free at once."""
    a, b = await group.pair()
    token = dict(a.held)
    began_s = asyncio.get_running_loop().time()
    await a.send_leave("NOW")
    await group.until(lambda: a.go_away == pb.GoAway.LEFT, "the leaver gets GoAway(LEFT)")
    await group.until(lambda: b.active == [0, 1, 2], "the other one has them")
    took_s = asyncio.get_running_loop().time() - began_s
    group.check(took_s < group.lease_s, f"without waiting for the lease: {took_s:.2f} s")
    partition, old = next(iter(token.items()))
    error = await a.commit(partition, 1, token=old)
    group.check(error == "UNKNOWN_MEMBER_ID", f"its commits are UNKNOWN_MEMBER_ID (was {error})")


@cases("5")
async def leave_with_drain(group: GroupTrial) -> None:
    """Leave(DRAIN): everything is handed over, then GoAway(DRAINED); what others hold stays."""
    a, b = await group.pair()
    (theirs,), before = b.active, dict(b.held)
    mine = a.active
    await a.send_leave("DRAIN", 20_000)
    await group.until(lambda: a.with_order(DRAIN) == mine, "everything is to be drained")
    group.check(
        all(0 < a.orders[p].remaining_ms <= 20_000 for p in mine), "within the leaver's time"
    )
    group.check(a.go_away is None, "it is a member while it drains")
    for partition in mine:
        await a.send_ack(partition)
    await group.until(lambda: a.go_away == pb.GoAway.DRAINED, "then it gets GoAway(DRAINED)")
    await group.until(lambda: b.active == [0, 1, 2], "the other one has everything")
    group.check(b.held[theirs] == before[theirs], "what it had, it had throughout")


@cases("5")
async def leave_drain_deadline(group: GroupTrial) -> None:
    """The rest is forced at the deadline of a Leave(DRAIN), since the leaver may be working: it is
    not free before its ack, or a lease after the last heartbeat that renewed it."""
    a, b = await group.pair()
    kept, given = a.active
    await a.send_leave("DRAIN", group.lease_ms // 2)
    await group.until(lambda: len(a.with_order(DRAIN)) == 2, "everything is to be drained")
    await a.send_ack(given)
    await group.until(lambda: a.orders[kept].order == LOST, "the rest is forced at the deadline")
    renewing_s = max(a.sent[ack.number] for ack in a.acks if not ack.expiring)
    await group.until(lambda: kept in b.active, "it goes on", 3 * group.lease_s + 10)
    group.not_before(b.ordered_s[kept], renewing_s, group.lease_s, "it goes on")


@cases("5")
async def leave_and_return(group: GroupTrial) -> None:
    """Leave(RETURN): partitions are reserved for the name; its next process has them back, under
    new tokens, and nobody else moves."""
    a, b = await group.pair()
    mine, old, before = a.active, dict(a.held), len(b.all_orders)
    await a.send_leave("RETURN", FOREVER_MS)
    await group.until(lambda: a.go_away == pb.GoAway.LEFT, "the leaver gets GoAway(LEFT)")
    await asyncio.sleep(0.5)
    await b.beat_and_hear()
    group.check(len(b.all_orders) == before, "nobody gets what is kept")
    again = _next(group, a)
    await again.attached()
    await group.until(lambda: again.active == mine, "the next process has the same partitions")
    group.check(all(again.held[p] > old[p] for p in mine), "under new tokens")
    await b.beat_and_hear()
    group.check(len(b.all_orders) == before, "the other member hears nothing")


@cases("5")
async def kept_for_a_time(group: GroupTrial) -> None:
    """Partitions that are reserved for a name are free when its time is up."""
    a, b = await group.pair()
    within_ms = group.lease_ms // 2
    began_s = asyncio.get_running_loop().time()
    await a.send_leave("RETURN", within_ms)
    await group.until(lambda: b.active == [0, 1, 2], "the other one has everything")
    took_s = asyncio.get_running_loop().time() - began_s
    group.check(took_s >= within_ms / 1_000 - 0.01, f"not before: it took {took_s:.2f} s")


@cases("5")
async def kept_group_is_not_empty(group: GroupTrial) -> None:
    """A group in which something is reserved for a name is no classic group."""
    a = await group.alone(2)
    await a.send_leave("RETURN", FOREVER_MS)
    await group.until(lambda: a.go_away == pb.GoAway.LEFT, "it has left")
    error = await group.join()
    group.check(error == "INCONSISTENT_GROUP_PROTOCOL", f"JoinGroup is refused: it was {error}")


@cases("5")
async def return_without_a_name(group: GroupTrial) -> None:
    """Leave(RETURN) of a member without a name is Leave(NOW)."""
    a = await group.attached("", 2)
    await group.until(lambda: a.active == [0, 1], "it holds both")
    b = await group.attached("w-b", 2, capacity=1.0)
    b.releases = a.releases = True
    await a.send_leave("RETURN", FOREVER_MS)
    await group.until(lambda: b.active == [0, 1], "the other one has everything")


@cases("5")
async def name_in_use(group: GroupTrial) -> None:
    """A second process under a name waits while the first one may be alive, holds nothing, and
    inherits everything when that one says NOW; nobody else moves."""
    a, b = await group.pair()
    mine, old, before = a.active, dict(a.held), len(b.all_orders)
    queued = _next(group, a)
    attached = await queued.attached()
    group.check(attached.standing == pb.Attached.WAITING, "the second process is WAITING")
    group.check(0 < attached.retry_after_ms <= group.lease_ms, "it is told the rest of the lease")
    group.check(bool(attached.why), "it is told why")
    ack = await queued.beat_and_hear()
    group.check(ack.number == 1 and not queued.orders, "it heartbeats, and holds nothing")
    await a.beat_and_hear()
    group.check(not a.last.has_ended, "the first one is not disturbed")
    await a.send_leave("NOW")
    await group.until(lambda: queued.active == mine, "the second process inherits")
    group.check(all(queued.held[p] > old[p] for p in mine), "under new tokens")
    await b.beat_and_hear()
    group.check(len(b.all_orders) == before, "the other member hears nothing")


@cases("5")
async def name_after_a_lease(group: GroupTrial) -> None:
    """A waiting process inherits when the lease of the first one ends."""
    a, _ = await group.pair()
    mine = a.active
    queued = _next(group, a)
    await queued.attached()
    silent_s = await a.fall_silent()
    await group.until(lambda: queued.active == mine, "it inherits", 3 * group.lease_s + 10)
    group.not_before(queued.ordered_s[mine[0]], silent_s, group.lease_s, "it inherits")


@cases("5")
async def one_waits_for_a_name(group: GroupTrial) -> None:
    """One process waits for a name, the one that was started last; an older one is refused."""
    a, _ = await group.pair()
    newest = _next(group, a)
    newest.started_at_ms += 60_000
    await newest.attached()
    older = _next(group, a)
    await older.attach_refused("UNRELEASED_INSTANCE_ID")
    await newest.beat_and_hear()
    group.check(not newest.last.has_ended, "the newest one waits on")


@cases("5")
async def ready_gates_receiving(group: GroupTrial) -> None:
    """A member that is not ready receives nothing and keeps what it holds."""
    a = await group.attached("w-a", 2, ready=False)
    await a.beat_and_hear(ready=False)
    await asyncio.sleep(0.3)
    group.check(not a.orders, "it receives nothing")
    group.check(bool(a.all_orders[-1].why), "and is told why")
    await a.send_beat(ready=True)
    await group.until(lambda: a.active == [0, 1], "ready, it receives")
    await a.beat_and_hear(ready=False)
    await asyncio.sleep(0.3)
    await a.beat_and_hear(ready=False)
    group.check(a.active == [0, 1], "not ready any more, it keeps what it holds")
