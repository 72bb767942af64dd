"""Hand-offs in the modes warm and copy: the next holder prepares."""

from __future__ import annotations

import asyncio

from coordinator.v1 import session_pb2 as pb
from tests.kit.session_member import DRAIN, WARM
from tests.protocol.sessions.coordinator_rules.group import GroupTrial
from tests.protocol.sessions.coordinator_rules.member import TrialMember
from tests.protocol.sessions.rules import Cases

cases: Cases[GroupTrial] = Cases()


@cases("6")
async def warm_then_drain(group: GroupTrial) -> None:
    """Warm: the next holder prepares without a token while the old one works; READY, then drain,
    then grant."""
    a, b, partition = await group.warming()
    group.check(b.orders[partition].token == 0, "WARM carries no token")
    await a.beat_and_hear()
    group.check(a.active == [0, 1], "the holder hears nothing of it")
    error = await b.commit(partition, 1)
    group.check(error == "INVALID_REQUEST", f"a commit without token is INVALID_REQUEST: {error}")
    group.check(await a.commit(partition, 70) == "NONE", "the holder commits")
    handoff_id = b.orders[partition].handoff_id
    await b.send_ack(partition, "READY")
    await group.until(lambda: a.with_order(DRAIN) == [partition], "then the holder is to drain")
    group.check(a.orders[partition].handoff_id == handoff_id, "under the same hand-off id")
    await a.send_ack(partition, position=70)
    await group.until(lambda: b.active == [partition], "then the next one has it")
    group.check(b.orders[partition].offset == 70, "from the committed offset")


@cases("6")
async def ready_counts_for_its_handoff(group: GroupTrial) -> None:
    """READY counts only under the open hand-off's id; a resumed member finds the order again."""
    a, b, partition = await group.warming()
    handoff_id = b.orders[partition].handoff_id
    await b.send_ack(partition, "READY", handoff_id=handoff_id + 1_000)
    await a.send_ack(partition, "READY", handoff_id=handoff_id)
    await b.beat_and_hear()
    await a.beat_and_hear()
    group.check(not a.with_order(DRAIN), "another id, or another member, does not count")
    attached = await b.attached()
    group.check(not attached.orders.HasField("based_on"), "the answer is the whole")
    group.check(b.orders[partition].handoff_id == handoff_id, "the whole names the same hand-off")
    await b.send_ack(partition, "READY")
    await group.until(lambda: a.with_order(DRAIN) == [partition], "the right id counts")


@cases("6")
async def holder_dies_while_warming(group: GroupTrial) -> None:
    """A holder that dies in PREPARE: the next one has it when the lease ends, READY or not."""
    a, b, partition = await group.warming()
    silent_s = await a.fall_silent()
    await group.until(lambda: partition in b.active, "the next one has it", 3 * group.lease_s + 10)
    group.not_before(b.ordered_s[partition], silent_s, group.lease_s, "it moves")


@cases("6")
async def warming_takes_too_long(group: GroupTrial) -> None:
    """A member that is never READY: its hand-off ends when the phase's time is up, plans in between
    give it no more, and the holder keeps its token."""
    group.policy.warm_timeout_ms = group.lease_ms
    a, b, partition = await group.warming()
    tokens, first = dict(a.held), b.orders[partition]
    group.check(first.remaining_ms <= group.lease_ms, "the order has the time that is left")
    await asyncio.sleep(group.lease_s / 2)
    await group.attached("w-c", 2, capacity=0.0)  # A reason for a plan.
    await group.until(
        lambda: (
            b.orders.get(partition) is None or b.orders[partition].handoff_id != first.handoff_id
        ),
        "the hand-off ends",
        group.lease_s / 2 + 10,
    )
    await a.beat_and_hear()
    group.check(a.held == tokens and not a.with_order(DRAIN), "the holder keeps it, as it was")


@cases("6")
async def refusal_backs_off(group: GroupTrial) -> None:
    """A refusal puts the pair off for ten seconds and more: no loop of orders and refusals."""
    a, b, partition = await group.warming()
    tokens = dict(a.held)
    b.refuses = True
    await b.send_ack(partition, "REFUSED", reason="no room")
    await asyncio.sleep(1.5)
    await b.beat_and_hear()
    orders = [event for _, event in b.history if event.order == WARM]
    group.check(len(orders) <= 2, f"each partition is offered once: {len(orders)} offers")
    group.check(a.held == tokens and not a.with_order(DRAIN), "the holder keeps everything")


@cases("6")
async def refused_while_held(group: GroupTrial) -> None:
    """REFUSED of a held token is a release with a back-off."""
    a = await group.alone(1)
    token = a.held[0]
    await a.send_ack(0, "REFUSED", reason="cannot open it")
    await asyncio.sleep(1.0)
    await a.beat_and_hear()
    granted = [event for _, event in a.history if event.order == pb.Orders.ACTIVE]
    group.check(len(granted) == 1, "it is not granted again at once")
    group.check(await a.commit(0, 1, token=token) == "FENCED_TOKEN", "its token has ended")


@cases("6")
async def free_in_warm_mode(group: GroupTrial) -> None:
    """A free partition is granted at once in mode warm too."""
    group.policy.mode = pb.GroupPolicy.WARM
    a, b, _ = await _both_attached(group)
    await a.send_leave("NOW")
    await group.until(lambda: b.active == [0, 1], "the other one has both")
    warmed = [partition for partition, event in b.history if event.order == WARM]
    group.check(len(set(warmed)) <= 1, "what became free was not warmed first")


@cases("6")
async def copy_prepares_from_the_position(group: GroupTrial) -> None:
    """Copy: drain first; then the next holder prepares up to the released position, and is active
    at READY."""
    a, b, partition = await _copying(group, position=70)
    group.check(b.orders[partition].position == 70, "the order has the released position")
    group.check(b.orders[partition].token == 0, "and no token")
    group.check(await a.commit(partition, 71) != "NONE", "the old token has ended")
    await b.send_ack(partition, "READY")
    await group.until(lambda: b.active == [partition], "READY makes it active")


@cases("6")
async def copy_loses_its_successor(group: GroupTrial) -> None:
    """The next holder dies while it copies: another one prepares from the same position."""
    _a, b, partition = await _copying(group, position=70)
    others = [await group.attached(name, 2, capacity=1.0) for name in ("w-c",)]
    await b.send_leave("NOW")
    await group.until(
        lambda: any(partition in {**m.orders} for m in [_a, *others]), "another one is to have it"
    )
    chosen = next(m for m in [_a, *others] if partition in m.orders)
    ordered = chosen.orders[partition]
    if ordered.order == WARM:
        group.check(ordered.position == 70, "from the same position")
        await chosen.send_ack(partition, "READY")
    await group.until(lambda: partition in chosen.active, "and becomes its holder")


@cases("6")
async def copy_from_a_dead_holder(group: GroupTrial) -> None:
    """A holder that dies in its drain: the next one copies from the committed offset."""
    group.policy.mode = pb.GroupPolicy.COPY
    a, b, partition = await group.handing_over()
    group.check(await a.commit(partition, 42) == "NONE", "its last commit")
    silent_s = await a.fall_silent()
    await group.until(
        lambda: partition in b.orders, "the next one is to copy", 3 * group.lease_s + 10
    )
    ordered = b.orders[partition]
    group.not_before(b.ordered_s[partition], silent_s, group.lease_s, "it is ordered")
    group.check(ordered.order == WARM, "it prepares first")
    group.check(ordered.position == 42, f"from the committed offset: {ordered.position}")
    await b.send_ack(partition, "READY")
    await group.until(lambda: partition in b.active, "READY makes it active")


async def _copying(group: GroupTrial, position: int) -> tuple[TrialMember, TrialMember, int]:
    group.policy.mode = pb.GroupPolicy.COPY
    a, b, partition = await group.handing_over()
    await a.send_ack(partition, position=position)
    await group.until(lambda: b.with_order(WARM) == [partition], "the next one is to prepare")
    return a, b, partition


async def _both_attached(group: GroupTrial) -> tuple[TrialMember, TrialMember, int]:
    a = await group.alone(2)
    b = await group.attached("w-b", 2)
    await group.until(lambda: bool(b.orders), "the second one has an order")
    return a, b, next(iter(b.orders))
