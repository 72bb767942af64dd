"""Operators' requests: the policy of a group, and evictions."""

from __future__ import annotations

from coordinator.v1 import errors_pb2
from coordinator.v1 import session_pb2 as pb
from tests.kit.session_member import DRAIN, LOST, WARM
from tests.protocol.sessions.coordinator_rules.group import GroupTrial
from tests.protocol.sessions.coordinator_rules.messages import listed
from tests.protocol.sessions.rules import Cases

cases: Cases[GroupTrial] = Cases()


@cases("10")
async def policy_is_changed(group: GroupTrial) -> None:
    """A policy is changed for hand-offs that begin afterwards; nobody who works notices."""
    a = await group.alone(2)
    old = dict(a.held)
    error = await group.set_policy(mode=pb.GroupPolicy.WARM)
    group.check(error == "NONE", f"the policy is changed (was {error})")
    b = await group.attached("w-b", 2)
    await group.until(lambda: len(b.with_order(WARM)) == 1, "the next hand-off begins with WARM")
    await a.beat_and_hear()
    group.check(a.held == old and not a.with_order(DRAIN), "the holder works on")


@cases("10")
async def policy_is_checked(group: GroupTrial) -> None:
    """A policy that makes no sense is INVALID_REQUEST, and changes nothing."""
    a = await group.alone(2)
    wrong: list[dict[str, int]] = [
        {"lease_ms": 1},
        {"lease_ms": 10_000_000},
        {"plan_interval_ms": -1},
        {"drain_timeout_ms": -1},
    ]
    for settings in wrong:
        error = await group.set_policy(**settings)
        group.check(error == "INVALID_REQUEST", f"{settings} is refused (was {error})")
    attached = await a.attached()
    group.check(attached.lease_ms == group.lease_ms, "the lease is what it was")


@cases("10")
async def evicted(group: GroupTrial) -> None:
    """An evicted member is told LOST, is not renewed, and holds each partition until it has
    released it, for a lease at most: it may be working."""
    a, b = await group.pair()
    kept, given = a.active
    renewing_s = a.sent[(await a.beat_and_hear()).number]
    error = await group.evict(a.name)
    group.check(error == "NONE", f"it is evicted (was {error})")
    await group.until(lambda: a.with_order(LOST) == [kept, given], "both are LOST")
    await a.send_ack(given)
    await group.until(lambda: given in b.active, "one that was released goes on")
    group.check(kept not in b.active, "the other one waits")
    await a.beat_and_hear()
    group.check(kept in listed(a.acks[-1]), "acknowledgements list it")
    await group.until(lambda: kept in b.active, "it goes on", 3 * group.lease_s + 10)
    group.not_before(b.ordered_s[kept], renewing_s, group.lease_s, "it goes on")
    await group.until(lambda: a.last.has_ended, "then the member's stream ends")


@cases("10")
async def evicted_as_gone(group: GroupTrial) -> None:
    """`gone` vouches that the process has ended: everything is free at once, and the session
    ends."""
    group.policy.lease_ms = group.lease_ms = 10 * group.lease_ms
    a, b = await group.pair()
    partition, token = next(iter(a.held.items()))
    error = await group.evict(a.name, gone=True)
    group.check(error == "NONE", f"it is evicted (was {error})")
    await group.until(lambda: b.active == [0, 1, 2], "the other one has everything")
    took_s = b.ordered_s[partition] - max(a.sent.values(), default=a.heard_s)
    group.check(took_s < group.lease_s, f"without waiting for the lease: {took_s:.2f} s")
    await group.until(lambda: a.last.has_ended, "its stream ends")
    refused = a.refused
    group.check(
        refused is not None and refused.error_code == errors_pb2.UNKNOWN_MEMBER_ID,
        "with UNKNOWN_MEMBER_ID",
    )
    error = await a.commit(partition, 1, token=token)
    group.check(error == "UNKNOWN_MEMBER_ID", f"its commits are UNKNOWN_MEMBER_ID (was {error})")


@cases("10")
async def evicted_name(group: GroupTrial) -> None:
    """The name for which partitions are kept is evicted: they are free at once."""
    a, b = await group.pair()
    await a.send_leave("RETURN", 300_000)
    await group.until(lambda: a.go_away == pb.GoAway.LEFT, "it has left")
    error = await group.evict(a.name)
    group.check(error == "NONE", f"the name is evicted (was {error})")
    await group.until(lambda: b.active == [0, 1, 2], "the other one has everything")
    error = await group.evict(a.name)
    group.check(error == "UNKNOWN_MEMBER_ID", f"nothing is left of it (was {error})")


@cases("10")
async def evicted_then_queued(group: GroupTrial) -> None:
    """A process waits for the name of a member that is evicted as gone: it inherits everything at
    once, under new tokens, and nobody else moves."""
    a, b = await group.pair()
    mine, old, before = a.active, dict(a.held), len(b.all_orders)
    queued = group.member(a.name, a.partitions)
    queued.started_at_ms = a.started_at_ms + 1_000
    attached = await queued.attached()
    group.check(attached.standing == pb.Attached.WAITING, "it waits")
    group.check(await group.evict(a.name, gone=True) == "NONE", "the first one is evicted")
    await group.until(lambda: queued.active == mine, "it inherits")
    group.check(all(queued.held[p] > old[p] for p in mine), "under new tokens")
    await b.beat_and_hear()
    group.check(len(b.all_orders) == before, "the other member hears nothing")
