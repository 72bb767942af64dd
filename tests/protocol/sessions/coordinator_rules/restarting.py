"""Restarts of the coordinator: holdings, tokens and what was forced outlive it.

These cases are played one at a time, after all others: a restart disturbs every group.
"""

from __future__ import annotations

from tests.kit.session_member import DRAIN, LOST
from tests.protocol.sessions.coordinator_rules.group import GroupTrial
from tests.protocol.sessions.coordinator_rules.messages import listed
from tests.protocol.sessions.rules import Cases

cases: Cases[GroupTrial] = Cases()


@cases("9")
async def restart_keeps_holdings(group: GroupTrial) -> None:
    """After a restart members resume their sessions, with the same partitions and tokens, and
    commit; nothing moves."""
    a, b = await group.pair()
    before = [(member, dict(member.held), member.session_id) for member in (a, b)]
    group.check(await a.commit(a.active[0], 7) == "NONE", "a commit before it")
    await group.restart()
    for member, held, session in before:
        attached = await group.back(member)
        group.check(attached.session_id == session, f"{member.name} has the same session")
        tokens = {p: member.orders[p].token for p in member.active}
        group.check(tokens == held, f"{member.name} holds what it held, under the same tokens")
    partition = a.active[0]
    group.check(a.orders[partition].offset == 7, "the committed offset is there")
    group.check(await a.commit(partition, 8) == "NONE", "it commits under the old token")
    earlier = len(a.all_orders), len(b.all_orders)
    for _ in range(4):
        await a.beat_and_hear()
        await b.beat_and_hear()
    group.check((len(a.all_orders), len(b.all_orders)) == earlier, "nobody is told anything else")


@cases("9")
async def restart_grants_a_lease(group: GroupTrial) -> None:
    """A member that does not come back is given a whole lease from when the new owner serves."""
    a, b = await group.pair()
    old = dict(a.held)
    a.cut()
    restarted_s = await group.restart()
    await group.back(b)
    await group.until(lambda: len(b.active) == 3, "the other has them", 3 * group.lease_s + 10)
    moved_s = min(b.ordered_s[p] for p in old)
    group.not_before(moved_s, restarted_s, group.lease_s, "they move")
    group.check(all(b.held[p] > old[p] for p in old), "under higher tokens")


@cases("6")
async def restart_in_a_drain(group: GroupTrial) -> None:
    """A drain that is open stays ordered, and RELEASED of its token hands the partition over."""
    a, b, partition = await group.handing_over()
    token = a.held[partition]
    await group.restart()
    await group.back(b)
    await group.back(a)
    group.check(a.with_order(DRAIN) == [partition], "the drain stays ordered")
    group.check(a.orders[partition].token == token, "under the same token")
    await a.send_ack(partition, position=1)
    await group.until(lambda: b.active == [partition], "the next one has it")
    group.check(b.held[partition] > token, "under a higher token")


@cases("6")
async def restart_while_forced(group: GroupTrial) -> None:
    """A forced partition is never given back under its token: the resumed holder finds it LOST, and
    every acknowledgement lists it, until it is free."""
    group.policy.drain_timeout_ms = 500
    group.policy.lease_ms = group.lease_ms = 4 * group.lease_ms
    a, b, partition = await group.handing_over()
    await group.until(lambda: a.orders[partition].order == LOST, "it is LOST when the time is up")
    restarted_s = await group.restart()
    await group.back(b)
    await group.back(a)
    group.check(a.orders[partition].order == LOST, "it is LOST after the restart")
    ack = await a.beat_and_hear()
    group.check(listed(ack) == [partition], "the first acknowledgement lists it")
    await group.until(lambda: partition in b.active, "the next one has it", 3 * group.lease_s + 10)
    took_s = b.ordered_s[partition] - restarted_s
    group.check(took_s < 2 * group.lease_s, f"a lease later: it took {took_s:.2f} s")


@cases("6")
async def restart_raises_tokens(group: GroupTrial) -> None:
    """Tokens that are granted after a restart are above all that were granted before."""
    a = await group.alone(3)
    top = max(a.held.values())
    await a.send_leave("NOW")
    await group.until(lambda: a.last.has_ended, "it has left")
    await group.restart()
    b = group.member("w-b", 3)
    await group.back(b)
    await group.until(lambda: len(b.active) == 3, "the next member has everything")
    group.check(min(b.held.values()) > top, "its tokens are above")
