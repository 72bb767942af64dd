"""Orders, and what a member has done about them."""

from __future__ import annotations

import asyncio

from coordinator.v1 import errors_pb2
from coordinator.v1 import session_pb2 as pb
from tests.kit.session_member import DRAIN, LOST, WARM
from tests.protocol.sessions.member_rules.coordinator import MemberTrial
from tests.protocol.sessions.member_rules.stream import Told
from tests.protocol.sessions.rules import Cases

cases: Cases[MemberTrial] = Cases()
RELEASED, READY, REFUSED = pb.SessionAck.RELEASED, pb.SessionAck.READY, pb.SessionAck.REFUSED


@cases("3")
async def ranges(trial: MemberTrial) -> None:
    """A range names consecutive partitions under consecutive tokens, each with its offset."""
    stream = await trial.attached({})
    trial.version += 1
    orders = pb.Orders(
        coordinator_epoch=trial.epoch, version=trial.version, based_on=trial.version - 1
    )
    each = pb.Orders.Range(
        partitions=pb.PartitionRange(first=1, last=3, first_token=2**52),
        order=pb.Orders.ACTIVE,
        committed_offsets=[7, -1, 9],
    )
    orders.topics.add(name="t", ranges=[each])
    stream.send(pb.SessionResponse(orders=orders))
    for number, offset in enumerate((7, -1, 9)):
        granted = await trial.event("granted", 1 + number)
        trial.check(granted.get("token") == 2**52 + number, f"its token: {granted}")
        trial.check(granted.get("offset") == offset, f"its offset: {granted}")


@cases("3")
async def gap(trial: MemberTrial) -> None:
    """A difference that is based on a version that it has not seen is not applied: it asks for the
    whole at once."""
    stream = await trial.attached({0: 10})
    await asyncio.sleep(0.1)
    seen = len(stream.heartbeats)
    stream.orders(trial.version + 5, [Told(1, token=12)], based_on=trial.version + 4)
    await trial.until(
        lambda: any(beat.whole for beat in stream.heartbeats[seen:]), "it asks for the whole"
    )
    trial.check(not trial.said("granted"), "the difference is not applied")
    beat = next(beat for beat in stream.heartbeats[seen:] if beat.whole)
    trial.version += 9
    trial.whole(stream, [Told(0, token=10), Told(1, token=13)], answers=beat.number)
    granted = await trial.event("granted", 1)
    trial.check(granted.get("token") == 13, "the whole is applied")
    trial.check(not trial.said("lost"), "what it names is kept")


@cases("3")
async def whole_without_a_partition(trial: MemberTrial) -> None:
    """A partition that orders in full no longer name is lost, without a drain or a commit."""
    stream = await trial.attached({0: 10, 1: 11})
    trial.whole(stream, [Told(1, token=11)])
    await trial.event("lost", 0)
    await trial.until(lambda: stream.count(RELEASED, 0, token=10) == 1, "it says RELEASED")
    trial.check(not trial.said("draining"), "without a drain")
    trial.check(not trial.commits, "without a commit")
    valid, _ = await trial.validity(0)
    trial.check(not valid, "it is not valid")
    valid, _ = await trial.validity(1)
    trial.check(valid, "the other one is")


@cases("4")
async def another_token(trial: MemberTrial) -> None:
    """Another token for a held partition: lost, then granted."""
    stream = await trial.attached({0: 10})
    trial.differ(stream, [Told(0, token=15)])
    await trial.event("lost", 0)
    granted = await trial.event("granted", 0)
    trial.check(granted.get("token") == 15, "under the new token")
    valid, _ = await trial.validity(0)
    trial.check(valid, "it is valid")


@cases("3")
async def pages(trial: MemberTrial) -> None:
    """A Orders in pages takes effect with the last one."""
    stream = await trial.attached({0: 10, 3: 13})
    trial.version += 1
    stream.orders(trial.version, [Told(0, token=10), Told(1, token=11)], is_part=True)
    await asyncio.sleep(0.3)
    trial.check(not trial.said("granted") and not trial.said("lost"), "nothing before the last")
    stream.orders(trial.version, [Told(2, token=12)])
    await trial.event("granted", 1)
    await trial.event("granted", 2)
    await trial.event("lost", 3)
    trial.check(not trial.said("lost", 0), "what the first page names is kept")


@cases("6")
async def drains(trial: MemberTrial) -> None:
    """DRAIN: it works on until it has released, and then says so with token, hand-off and
    position."""
    stream = await trial.attached({0: 10, 1: 11})
    trial.differ(stream, [Told(0, DRAIN, 10, 77, remaining_ms=20_000)])
    await trial.event("draining", 0)
    valid, takes_work = await trial.validity(0)
    trial.check(valid, "effects may leave while it drains")
    trial.check(not takes_work, "no new work is begun")
    trial.check(await trial.commit(0, 70) == "NONE", "it commits while it drains")
    trial.check(stream.count(RELEASED, 0) == 0, "it has not released")
    trial.member.released(trial.holding(0), 70)
    await trial.until(lambda: stream.count(RELEASED, 0) > 0, "it says RELEASED")
    (ack,) = [each for each in stream.acked if each.partition == 0]
    trial.check((ack.token, ack.handoff_id) == (10, 77), "with the token and the hand-off's id")
    trial.check(ack.HasField("position") and ack.position == 70, "and the position")
    valid, _ = await trial.validity(0)
    trial.check(not valid, "it is not valid any more")
    trial.check(not trial.said("lost"), "a drained partition is not lost")


@cases("3")
async def repeats_released(trial: MemberTrial) -> None:
    """Orders in full that still name one which was carried out: the ack is repeated."""
    stream = await trial.attached({0: 10})
    order = Told(0, DRAIN, 10, 77, remaining_ms=20_000)
    trial.differ(stream, [order])
    await trial.event("draining", 0)
    trial.member.released(trial.holding(0), 70)
    await trial.until(lambda: stream.count(RELEASED, 0) == 1, "it says RELEASED")
    trial.whole(stream, [order])
    await trial.until(lambda: stream.count(RELEASED, 0, token=10) == 2, "it says so again")
    stream.end()
    stream = await trial.attaching(2)
    trial.answer(stream, [order])
    await trial.until(lambda: stream.count(RELEASED, 0, token=10) == 1, "and on the next stream")
    trial.check(not trial.said("granted") and not trial.said("draining"), "it is not given back")


@cases("6")
async def lost_is_no_drain(trial: MemberTrial) -> None:
    """LOST: no drain and no commit; RELEASED once it has stopped, and once only."""
    stream = await trial.attached({0: 10, 1: 11})
    trial.differ(stream, [Told(0, LOST, 10, 77)])
    await trial.event("lost", 0)
    await trial.until(lambda: stream.count(RELEASED, 0, token=10) == 1, "it says RELEASED")
    error = await trial.commit(0, 5)
    trial.check(error != "NONE", "a commit is refused")
    trial.check(not trial.commits, "and not sent")
    await asyncio.sleep(0.3)
    trial.check(stream.count(RELEASED, 0) == 1, "once")
    trial.check(not trial.said("lost", 0) and not trial.said("draining", 0), "and told once")


@cases("6")
async def drain_becomes_lost(trial: MemberTrial) -> None:
    """A drain that becomes LOST."""
    stream = await trial.attached({0: 10})
    trial.differ(stream, [Told(0, DRAIN, 10, 77, remaining_ms=20_000)])
    await trial.event("draining", 0)
    trial.differ(stream, [Told(0, LOST, 10, 77)])
    await trial.event("lost", 0)
    await trial.until(lambda: stream.count(RELEASED, 0, token=10) == 1, "it says RELEASED")
    valid, _ = await trial.validity(0)
    trial.check(not valid, "it is not valid")


@cases("6")
async def warms(trial: MemberTrial) -> None:
    """WARM: it prepares, holds nothing, and says READY; then it is granted the partition."""
    stream = await trial.attached({0: 10})
    trial.differ(stream, [Told(1, WARM, 0, 88, remaining_ms=60_000)])
    await trial.event("warming", 1)
    valid, _ = await trial.validity(1)
    trial.check(not valid, "it is not valid: there is no token")
    trial.check(stream.count(READY, 1) == 0, "it is not ready yet")
    trial.member.ready(trial.holding(1))
    await trial.until(lambda: stream.count(READY, 1, handoff_id=88) == 1, "it says READY")
    trial.differ(stream, [Told(1, token=20)])
    granted = await trial.event("granted", 1)
    trial.check(granted.get("token") == 20, "it is granted")


@cases("3")
async def repeats_ready(trial: MemberTrial) -> None:
    """A resumed member finds its WARM again and repeats READY; another id is another order."""
    stream = await trial.attached({})
    trial.differ(stream, [Told(1, WARM, 0, 88)])
    await trial.event("warming", 1)
    trial.member.ready(trial.holding(1))
    await trial.until(lambda: stream.count(READY, 1, handoff_id=88) == 1, "it says READY")
    stream.end()
    stream = await trial.attaching(2)
    trial.answer(stream, [Told(1, WARM, 0, 88)])
    await trial.until(lambda: stream.count(READY, 1, handoff_id=88) == 1, "it says READY again")
    trial.differ(stream, [Told(1, WARM, 0, 99)])
    await asyncio.sleep(0.3)
    trial.check(stream.count(READY, 1, handoff_id=99) == 0, "a new hand-off is not ready at once")
    await trial.event("warming", 1)
    trial.member.ready(trial.holding(1))
    await trial.until(lambda: stream.count(READY, 1, handoff_id=99) == 1, "READY for the new one")


@cases("6")
async def copies(trial: MemberTrial) -> None:
    """Mode copy: the position up to which to prepare is told."""
    stream = await trial.attached({})
    trial.differ(stream, [Told(1, WARM, 0, 88, position=70, offset=60)])
    warming = await trial.event("warming", 1)
    trial.check(warming.get("position") == 70, f"the position is told: {warming}")


@cases("3")
async def dropped_while_warming(trial: MemberTrial) -> None:
    """A WARM that orders in full no longer name is dropped, and nothing is released."""
    stream = await trial.attached({0: 10})
    trial.differ(stream, [Told(1, WARM, 0, 88)])
    await trial.event("warming", 1)
    trial.whole(stream, [Told(0, token=10)])
    await trial.event("lost", 1)
    await asyncio.sleep(0.2)
    trial.check(stream.count(RELEASED, 1) == 0, "there is nothing to release")
    trial.check(not trial.said("lost", 0), "the other one stays")


@cases("6")
async def refuses(trial: MemberTrial) -> None:
    """REFUSED of an order to warm names the hand-off; of a held partition, the token."""
    stream = await trial.attached({0: 10})
    trial.differ(stream, [Told(1, WARM, 0, 88)])
    await trial.event("warming", 1)
    trial.member.refuse(trial.holding(1), "no room")
    await trial.until(lambda: stream.count(REFUSED, 1, handoff_id=88) == 1, "it says REFUSED")
    trial.member.refuse(trial.holding(0), "poison")
    await trial.until(lambda: stream.count(REFUSED, 0, token=10) == 1, "it says REFUSED")
    valid, _ = await trial.validity(0)
    trial.check(not valid, "it is not valid any more")


@cases("8")
async def commits_carry_tokens(trial: MemberTrial) -> None:
    """A commit carries member and token; FENCED_TOKEN is no success."""
    await trial.attached({0: 10})
    trial.check(await trial.commit(0, 41) == "NONE", "it is stored")
    (request,) = trial.commits
    (each,) = request.topics[0].partitions
    trial.check(request.member_id == "member-1", "it names the member")
    trial.check(each.HasField("token") and each.token == 10, "it carries the token")
    trial.check(each.committed_offset == 41, "and the offset")
    trial.commit_error = errors_pb2.FENCED_TOKEN
    trial.check(await trial.commit(0, 42) != "NONE", "FENCED_TOKEN is told")
