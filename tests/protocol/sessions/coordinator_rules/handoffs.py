"""Hand-offs in mode simple: drain, release, grant; and what happens when nobody releases."""

from __future__ import annotations

import asyncio

from coordinator.v1 import session_pb2 as pb
from tests.kit.session_member import DRAIN, LOST
from tests.protocol.sessions.coordinator_rules.group import GroupTrial
from tests.protocol.sessions.coordinator_rules.messages import listed
from tests.protocol.sessions.rules import Cases

cases: Cases[GroupTrial] = Cases()


@cases("6")
async def drain_release_grant(group: GroupTrial) -> None:
    """A partition is drained, released, and granted under a new token; the other one of its holder
    is not touched."""
    a, b, partition = await group.handing_over()
    (kept,) = a.active
    ordered, before = a.orders[partition], a.orders[kept]
    group.check(ordered.handoff_id > 0, "the order has a hand-off id")
    group.check(0 < ordered.remaining_ms <= 30_000, "the order has the time that is left")
    group.check(ordered.token == a.held[partition], "the order names the token")
    group.check(await a.commit(partition, 70) == "NONE", "its holder commits while it drains")
    group.check(not b.orders, "the next one has nothing before the release")
    await a.send_ack(partition, position=70)
    await group.until(lambda: b.active == [partition], "the next one has it")
    group.check(b.held[partition] > ordered.token, "the token has risen")
    group.check(b.orders[partition].offset == 70, "the committed offset comes with the grant")
    group.check(a.orders[kept] == before, "the one that stays has not been spoken of")


@cases("6")
async def released_is_about_the_token(group: GroupTrial) -> None:
    """RELEASED counts by its token, whatever hand-off it names; another token is ignored."""
    a, b, partition = await group.handing_over()
    token = a.held[partition]
    await a.send_ack(partition, token=token + 1_000)
    await a.beat_and_hear()
    group.check(not b.active, "another token is ignored")
    await a.send_ack(partition, handoff_id=999_999)
    await group.until(lambda: b.active == [partition], "another hand-off's id does not matter")


@cases("6")
async def released_twice(group: GroupTrial) -> None:
    """A repeated RELEASED is ignored."""
    a, b, partition = await group.handing_over()
    ordered = a.orders[partition]
    for _ in range(3):
        await a.send_ack(partition, token=ordered.token, handoff_id=ordered.handoff_id)
    await group.until(lambda: b.active == [partition], "the next one has it")
    token = b.held[partition]
    await a.send_ack(partition, token=ordered.token, handoff_id=ordered.handoff_id)
    await a.beat_and_hear()
    await b.beat_and_hear()
    group.check(b.orders[partition].token == token, "it is granted once")


@cases("6")
async def given_up_unasked(group: GroupTrial) -> None:
    """A member may give up a partition that nobody asked for; its token ends with that."""
    a = await group.alone(2)
    token = a.held[0]
    await a.send_ack(0)
    await group.until(lambda: a.held.get(0, 0) > token, "it is granted again, under a new token")
    error = await a.commit(0, 3, token=token)
    group.check(error == "FENCED_TOKEN", "the old token has ended")


@cases("6")
async def drain_is_not_taken_back(group: GroupTrial) -> None:
    """A drain once ordered is never taken back: the same member gets the partition again only after
    its release, under a new token."""
    a, b, partition = await group.handing_over()
    token = a.held[partition]
    await b.send_leave("NOW")
    await group.until(lambda: b.go_away == pb.GoAway.LEFT, "the next holder has left")
    await a.beat_and_hear()
    await a.beat_and_hear(whole=True)
    await group.until(lambda: a.all_orders[-1].HasField("answers"), "the whole has come")
    group.check(a.orders[partition].order == DRAIN, "the drain stays ordered")
    await a.send_ack(partition)
    await group.until(
        lambda: partition in a.active and a.held[partition] > token,
        "then it is granted under a new token",
    )


@cases("6")
async def no_grant_to_a_suspect(group: GroupTrial) -> None:
    """A partition does not go to a member without a stream."""
    a, b, partition = await group.handing_over()
    b.cut()
    await group.until(lambda: b.last.has_ended, "the next holder's stream has ended")
    await asyncio.sleep(0.2)  # The server hears of it by itself.
    await a.beat_and_hear()
    token = a.held[partition]
    await a.send_ack(partition)
    await group.until(
        lambda: partition in a.active and a.held[partition] > token,
        "it goes to one that has a stream",
        group.lease_s + 10,
    )


@cases("6")
async def holder_dies_in_drain(group: GroupTrial) -> None:
    """A holder that dies while it drains: its partition goes on when its lease ends, not when the
    drain's time is up."""
    a, b, partition = await group.handing_over()
    silent_s = await a.fall_silent()
    await group.until(lambda: len(b.active) == 2, "the next one has both", 3 * group.lease_s + 10)
    group.not_before(b.ordered_s[partition], silent_s, group.lease_s, "it goes on")


@cases("6")
async def drain_time_wished(group: GroupTrial) -> None:
    """A member's `drain_ms` shortens its drains, and cannot lengthen them."""
    left_ms = await _time_to_drain(group, bound_ms=20_000, wished_ms=5_000)
    group.check(0 < left_ms <= 5_000, f"the drain has at most what it asked for: {left_ms}")


@cases("6")
async def drain_time_bounded(group: GroupTrial) -> None:
    """A `drain_ms` above the group's bound is the bound."""
    left_ms = await _time_to_drain(group, bound_ms=5_000, wished_ms=60_000)
    group.check(0 < left_ms <= 5_000, f"the drain has at most the group's bound: {left_ms}")


async def _time_to_drain(group: GroupTrial, *, bound_ms: int, wished_ms: int) -> int:
    """Milliseconds that a drain has when it is ordered."""
    group.policy.drain_timeout_ms = bound_ms
    a, _, partition = await group.handing_over(drain_ms=wished_ms)
    return a.orders[partition].remaining_ms


@cases("6")
async def forced(group: GroupTrial) -> None:
    """A partition that is not released in time is LOST, not renewed, and free a lease after the
    last heartbeat that renewed it; the holder keeps the rest."""
    group.policy.drain_timeout_ms = group.lease_ms // 2
    a, b, partition = await group.handing_over()
    (kept,) = a.active
    old = a.held[partition]
    await group.until(lambda: a.orders[partition].order == LOST, "it is LOST when the time is up")
    renewing = [ack for ack in a.acks if not listed(ack)]
    group.check(
        await a.commit(partition, 8, token=old) == "NONE", "its commits count until it is free"
    )
    await a.beat_and_hear()
    group.check(listed(a.acks[-1]) == [partition], "acknowledgements list it, and it alone")
    await group.until(
        lambda: b.active == [partition], "the next one gets it", 3 * group.lease_s + 10
    )
    group.not_before(
        b.ordered_s[partition], a.sent[renewing[-1].number], group.lease_s, "it is granted"
    )
    group.check(a.active == [kept] and not a.last.has_ended, "the holder keeps the rest")
    error = await a.commit(partition, 9, token=old)
    group.check(error == "FENCED_TOKEN", f"then its commits are FENCED_TOKEN (was {error})")
    group.check(group.last_holder == (b.member_id, "w-b"), "the error names the holder")
    listed_before = len(a.acks)
    await a.beat_and_hear()
    await group.until(lambda: len(a.acks) > listed_before, "its heartbeats are acknowledged")


@cases("6")
async def forced_and_released(group: GroupTrial) -> None:
    """A forced partition is free at its holder's release."""
    group.policy.drain_timeout_ms = 500
    group.policy.lease_ms = group.lease_ms = 10 * group.lease_ms
    a, b, partition = await group.handing_over()
    await group.until(lambda: a.orders[partition].order == LOST, "it is LOST when the time is up")
    lost_s = a.ordered_s[partition]
    await a.send_ack(partition)
    await group.until(lambda: b.active == [partition], "the next one gets it")
    took_s = b.ordered_s[partition] - lost_s
    group.check(took_s < group.lease_s / 2, f"at the release, not a lease later: {took_s:.2f} s")


@cases("6")
async def forced_while_sinks_check(group: GroupTrial) -> None:
    """A forced partition is free at once with `sinks_check_tokens`."""
    group.policy.drain_timeout_ms = 500
    group.policy.sinks_check_tokens = True
    group.policy.lease_ms = group.lease_ms = 10 * group.lease_ms
    _a, b, partition = await group.handing_over()
    began_s = asyncio.get_running_loop().time()
    await group.until(lambda: b.active == [partition], "the next one gets it")
    took_s = asyncio.get_running_loop().time() - began_s
    group.check(took_s < group.lease_s / 2, f"not a lease later: {took_s:.2f} s")


@cases("6")
async def deadline_is_fixed(group: GroupTrial) -> None:
    """No plan and no change of successor gives a drain more time."""
    group.policy.drain_timeout_ms = 2 * group.lease_ms
    a, b, partition = await group.handing_over()
    began_s = a.ordered_s[partition]
    await asyncio.sleep(group.lease_s / 2)
    c = await group.attached("w-c", 2)
    await b.send_leave("NOW")
    await asyncio.sleep(group.lease_s / 2)
    await group.attached("w-d", 2)
    await c.send_leave("NOW")
    await asyncio.sleep(group.lease_s / 4)
    await a.send_beat(whole=True)
    await group.until(lambda: a.all_orders[-1].HasField("answers"), "the whole has come")
    told = a.orders[partition]
    spent_ms = (a.ordered_s[partition] - began_s) * 1_000
    group.check(told.order == DRAIN, "the drain stays ordered")
    group.check(
        told.remaining_ms <= 2 * group.lease_ms - spent_ms + 500,
        f"after {spent_ms:.0f} ms, {told.remaining_ms} ms are left",
    )
    await group.until(
        lambda: a.orders[partition].order == LOST, "it is LOST", 3 * group.lease_s + 10
    )


@cases("6")
async def budget(group: GroupTrial) -> None:
    """Balancing drains at most a tenth of the partitions at a time, and one at least; a release
    opens the next at once."""
    a = await group.alone(6)
    b = await group.attached("w-b", 6)
    for done in range(3):
        await group.until(lambda: len(a.with_order(DRAIN)) == 1, "one is to be drained")
        await a.beat_and_hear()
        group.check(len(a.with_order(DRAIN)) == 1, "one at a time")
        (partition,) = a.with_order(DRAIN)
        a.orders.pop(partition)
        await a.send(_released(partition, a.held.pop(partition)))
        await group.until(lambda n=done + 1: len(b.active) == n, "the next one has it")  # type: ignore[misc]
    await a.beat_and_hear()
    group.check(not a.with_order(DRAIN), "then they are even")


@cases("6")
async def budget_of_many(group: GroupTrial) -> None:
    """Balancing of 200 partitions drains 20 at a time; those of a leaver are not held back."""
    a = await group.alone(200)
    b = await group.attached("w-b", 200)
    await group.until(lambda: len(a.with_order(DRAIN)) == 20, "20 are to be drained")
    await a.beat_and_hear()
    group.check(len(a.with_order(DRAIN)) == 20, "no more than 20")
    a.releases = True
    for partition in a.with_order(DRAIN):
        await a.send_ack(partition)
    await group.until(lambda: len(b.active) == 100, "half of them have moved")
    await b.send_leave("DRAIN", 20_000)
    await group.until(lambda: len(b.with_order(DRAIN)) == 100, "a leaver drains all at once")


def _released(partition: int, token: int) -> pb.SessionRequest:
    each = pb.SessionAck.Partition(
        topic="t", partition=partition, kind=pb.SessionAck.RELEASED, token=token
    )
    return pb.SessionRequest(ack=pb.SessionAck(partitions=[each]))
