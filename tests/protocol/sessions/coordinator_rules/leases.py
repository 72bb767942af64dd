"""Leases: until when a member may act."""

from __future__ import annotations

import asyncio

from coordinator.v1 import session_pb2 as pb
from tests.protocol.sessions.coordinator_rules.group import GroupTrial
from tests.protocol.sessions.coordinator_rules.member import TrialMember
from tests.protocol.sessions.rules import Cases

cases: Cases[GroupTrial] = Cases()


async def _moves_at_the_end(
    group: GroupTrial, a: TrialMember, b: TrialMember, silent_s: float
) -> None:
    old = dict(a.held)
    await group.until(lambda: b.active == [0, 1, 2], "the other gets them", 3 * group.lease_s + 10)
    moved_s = min(b.ordered_s[p] for p in old)
    group.not_before(moved_s, silent_s, group.lease_s, "they move")
    group.check(all(b.held[p] > old[p] for p in old), "under new, higher tokens")


@cases("4")
async def lease_ends(group: GroupTrial) -> None:
    """A member that is silent for a lease is removed; its partitions go to another one, under new
    tokens, and its commits are UNKNOWN_MEMBER_ID."""
    a, b = await group.pair()
    silent_s = await a.fall_silent()
    await _moves_at_the_end(group, a, b, silent_s)
    error = await a.commit(a.active[0], 1)
    group.check(error == "UNKNOWN_MEMBER_ID", f"its commits are UNKNOWN_MEMBER_ID (was {error})")


@cases("4")
async def late_heartbeat(group: GroupTrial) -> None:
    """A heartbeat after the end of the lease gets UNKNOWN_MEMBER_ID, and renews nothing."""
    a, b = await group.pair()
    await a.fall_silent()
    await group.until(lambda: len(b.active) == 3, "the lease ends", 3 * group.lease_s + 10)
    if not a.last.has_ended:
        await a.send_beat()
        await group.until(lambda: a.last.has_ended, "the late heartbeat ends the stream")
    refused = a.refused
    group.check(
        refused is not None and refused.error_code == 25, "the stream ends with UNKNOWN_MEMBER_ID"
    )
    group.check(len(b.active) == 3, "nothing comes back")


@cases("3")
async def stream_end_is_no_death(group: GroupTrial) -> None:
    """A stream that ends says nothing about its member: its partitions stay for a whole lease."""
    a, b = await group.pair()
    ack = await a.beat_and_hear()
    a.cut()
    await _moves_at_the_end(group, a, b, a.sent[ack.number])


@cases("3")
async def commits_do_not_renew(group: GroupTrial) -> None:
    """Commits are accepted until the lease ends, and do not renew it."""
    a, b = await group.pair()
    partition = a.active[0]
    silent_s = await a.fall_silent()
    accepted = 0
    while len(b.active) < 3:
        error = await a.commit(partition, accepted)
        if error != "NONE":
            group.check(error == "UNKNOWN_MEMBER_ID", f"then it is UNKNOWN_MEMBER_ID, not {error}")
            break
        accepted += 1
        await asyncio.sleep(group.lease_s / 10)
    group.check(accepted > 0, "commits before the end are accepted")
    await _moves_at_the_end(group, a, b, silent_s)


@cases("4")
async def heartbeat_number_goes_back(group: GroupTrial) -> None:
    """A heartbeat whose number is not above the last one renews nothing."""
    a, b = await group.pair()
    silent_s = await a.fall_silent()

    async def repeat() -> None:
        number = a.number
        while len(b.active) < 3 and not a.last.has_ended:
            await a.send_beat(number=number)
            await asyncio.sleep(group.lease_s / 5)

    repeating = asyncio.create_task(repeat())
    try:
        await _moves_at_the_end(group, a, b, silent_s)
    finally:
        repeating.cancel()


async def _with_a_shorter_lease(group: GroupTrial) -> tuple[TrialMember, TrialMember]:
    """Two members under four times the lease that the group's policy has now."""
    group.policy.lease_ms = group.lease_ms = 4 * group.lease_ms
    a, b = await group.pair()
    group.lease_ms //= 4
    group.check(await group.set_policy(lease_ms=group.lease_ms) == "NONE", "the policy is changed")
    await a.beat_and_hear()
    return a, b


@cases("4")
async def shorter_lease_unheard(group: GroupTrial) -> None:
    """A lease that was told and perhaps not heard does not count: the coordinator counts the longer
    one, from the Attach."""
    a, b = await _with_a_shorter_lease(group)
    a.beats = False
    attached = await a.attached()
    group.check(attached.lease_ms == group.lease_ms, "the lease that counts next is told")
    a.cut()
    old = dict(a.held)
    await group.until(lambda: len(b.active) == 3, "the lease ends", 8 * group.lease_s + 10)
    moved_s = min(b.ordered_s[p] for p in old)
    group.not_before(moved_s, a.heard_s, 4 * group.lease_s, "they move")


@cases("4")
async def shorter_lease_heard(group: GroupTrial) -> None:
    """A heartbeat on the stream that told the lease shows that it was heard: it counts from
    there."""
    a, b = await _with_a_shorter_lease(group)
    a.beats = False
    await a.attached()
    silent_s = await a.fall_silent()
    old = dict(a.held)
    await group.until(lambda: len(b.active) == 3, "the lease ends", 8 * group.lease_s + 10)
    moved_s = min(b.ordered_s[p] for p in old)
    group.not_before(moved_s, silent_s, group.lease_s, "they move")
    took_s = moved_s - silent_s
    group.check(took_s < 4 * group.lease_s, f"the shorter one counts: it took {took_s:.2f} s")


@cases("4")
async def handover_delay(group: GroupTrial) -> None:
    """`handover_delay_ms` comes after every end that was not by consent, and after no other."""
    delay_ms = group.lease_ms
    group.policy.handover_delay_ms = delay_ms
    a, b = await group.pair()
    given, kept = a.active
    await a.send_ack(given)
    # It is free at once, so somebody gets it before the delay could have passed.
    began_s = asyncio.get_running_loop().time()
    await group.until(lambda: given in a.active + b.active and given in a.held | b.held,
                      "one given up is granted without the delay")  # fmt: skip
    took_s = asyncio.get_running_loop().time() - began_s
    group.check(took_s < delay_ms / 1_000, f"without the delay: it took {took_s:.2f} s")
    silent_s = await a.fall_silent()
    await group.until(lambda: kept in b.active, "the rest is granted", 4 * group.lease_s + 10)
    group.not_before(
        b.ordered_s[kept], silent_s, group.lease_s + delay_ms / 1_000, "they are granted"
    )


@cases("4")
async def stall_drains(group: GroupTrial) -> None:
    """A member whose progress stamp stands still for `max_idle_ms` is drained (policy `drain`),
    stays a member, and receives again when the stamp moves."""
    group.policy.max_idle_ms = group.lease_ms
    group.policy.on_stall = pb.GroupPolicy.DRAIN
    a, b = await group.pair()
    mine = a.active
    a.beats = False  # From here on its heartbeats carry a stamp that stands still.
    ends_s = asyncio.get_running_loop().time() + 6 * group.lease_s + 10
    while a.with_order(pb.Orders.DRAIN) != mine:
        await a.beat_and_hear(progress=1)
        group.check(asyncio.get_running_loop().time() < ends_s, "its partitions are drained")
        await asyncio.sleep(group.lease_s / 5)
    group.check(not a.last.has_ended, "it stays a member")
    for partition in mine:
        await a.send_ack(partition)
    await a.beat_and_hear(progress=1)
    a.heartbeat_again()
    a.releases = b.releases = True
    await group.until(lambda: bool(a.active), "it receives again when the stamp moves")
