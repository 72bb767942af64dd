"""Attach, resume, supersede."""

from __future__ import annotations

from coordinator.v1 import session_pb2 as pb
from tests.kit.session_member import held_topics
from tests.protocol.sessions.coordinator_rules.group import GroupTrial
from tests.protocol.sessions.coordinator_rules.messages import held_set
from tests.protocol.sessions.rules import Cases

cases: Cases[GroupTrial] = Cases()


@cases("5")
async def attach_new(group: GroupTrial) -> None:
    """A new member is answered before it is given anything, and is told why it has nothing."""
    a = group.member("w-a", 4)
    attached = await a.attached()
    group.check(attached.standing == pb.Attached.MEMBER, "the standing is MEMBER")
    group.check(bool(attached.session_id and attached.member_id), "session and member have ids")
    group.check(attached.lease_ms == group.lease_ms, "the lease is that of the group's policy")
    group.check(attached.heartbeat_interval_ms == group.lease_ms // 4, "heartbeats every L/4")
    group.check(not attached.orders.HasField("based_on"), "Attached carries all orders")
    group.check(not attached.orders.topics, "nothing is granted before a plan")
    group.check(bool(attached.orders.why), "Orders without any say why")
    await group.until(lambda: a.active == [0, 1, 2, 3], "the only member gets everything")
    tokens = [a.orders[p].token for p in a.active]
    group.check(all(tokens) and len(set(tokens)) == 4, "each grant has a token of its own")


@cases("5")
async def resume_keeps_tokens(group: GroupTrial) -> None:
    """A member that comes back on a new stream keeps its session, partitions and tokens; nobody
    else hears of it."""
    a, b = await group.pair()
    before, session, earlier = dict(a.held), a.session_id, len(b.all_orders)
    a.cut()
    await group.until(lambda: a.last.has_ended, "the stream has ended")
    a.beats = True
    attached = await a.attached()
    group.check(attached.session_id == session, "the session is the same")
    group.check({p: a.orders[p].token for p in a.active} == before, "the tokens are the same")
    group.check(len(b.all_orders) == earlier, "the other member is told nothing")


@cases("3")
async def resume_without_session_id(group: GroupTrial) -> None:
    """An incarnation that has a session resumes it without its id: the first answer may have been
    lost."""
    a = await group.alone(2)
    session = a.session_id
    attached = await a.attached(session_id="")
    group.check(attached.session_id == session, "the session is the same")
    group.check(a.active == [0, 1], "its partitions are its own")


@cases("5")
async def resume_claims_too_much(group: GroupTrial) -> None:
    """Claims of what a member does not hold are LOST; the one who holds it hears nothing."""
    a, b = await group.pair()
    mine, (theirs,), before = a.active, b.active, len(b.all_orders)
    attached = await a.attached(held=held_topics({**a.held, theirs: 99}))
    group.check(a.active == mine, "what it holds is ACTIVE")
    lost = [
        span.order
        for topic in attached.orders.topics
        for span in topic.ranges
        if span.partitions.first <= theirs <= span.partitions.last
    ]
    group.check(lost == [pb.Orders.LOST], "what it claimed and does not hold is named LOST")
    group.check(len(b.all_orders) == before, "the holder is told nothing")


@cases("5")
async def resume_without_claim(group: GroupTrial) -> None:
    """A partition that a member holds and does not claim is granted anew, with a new token."""
    a, _ = await group.pair()
    unclaimed, claimed = a.active
    old = dict(a.held)
    await a.attached(held=held_topics({claimed: old[claimed]}))
    await group.until(
        lambda: a.orders[unclaimed].token > old[unclaimed], "the unclaimed one has a new token"
    )
    group.check(a.orders[claimed].token == old[claimed], "the claimed one keeps its token")
    error = await a.commit(unclaimed, 1, token=old[unclaimed])
    group.check(error == "FENCED_TOKEN", "a commit under the old token is FENCED_TOKEN")


@cases("5")
async def heartbeat_claims(group: GroupTrial) -> None:
    """A heartbeat's held set is compared with grants up to its `applied` only."""
    a = await group.alone(1)
    token = a.held[0]
    await a.beat_and_hear(held=held_set({}), applied_version=max(0, a.version - 1))
    await a.beat_and_hear()
    group.check(a.orders[0].token == token, "a grant newer than `applied` is left alone")
    await a.send_beat(held=held_set({}))
    await group.until(lambda: a.orders[0].token > token, "one that it has applied is granted anew")


@cases("3")
async def supersede(group: GroupTrial) -> None:
    """The newest stream of a session wins; the older one gets GoAway(SUPERSEDED), and what it says
    afterwards is dropped."""
    a = await group.alone(2)
    old = a.last
    await a.attached()
    await group.until(lambda: old.has_ended, "the older stream ends")
    said = old.first("go_away")
    group.check(
        said is not None and said.reason == pb.GoAway.SUPERSEDED, "it gets GoAway(SUPERSEDED)"
    )
    ack = pb.SessionAck.Partition(
        topic="t", partition=0, kind=pb.SessionAck.RELEASED, token=a.held[0]
    )
    await a.send(pb.SessionRequest(ack=pb.SessionAck(partitions=[ack])), old)
    await a.beat_and_hear()
    group.check(await a.commit(0, 5) == "NONE", "a release on the older stream changes nothing")


@cases("3")
async def old_stream_number(group: GroupTrial) -> None:
    """An Attach whose stream number is not above the session's newest is refused, and the newest
    stream goes on."""
    a = await group.alone(2)
    await a.attached(stream_number=3)
    newest = a.last
    for number in (2, 3):
        await a.attach_refused("FENCED_INSTANCE_ID", stream_number=number)
    a.stream = newest
    await a.beat_and_hear()
    group.check(not newest.has_ended, "the newest stream goes on")


@cases("3")
async def unknown_session(group: GroupTrial) -> None:
    """A session id that nobody knows gets a new session; all that it claims is LOST."""
    a = group.member("w-a")
    attached = await a.attached(session_id="f" * 32, held=held_topics({0: 7}))
    group.check(attached.session_id not in ("", "f" * 32), "it gets another session")
    ranges = [span for topic in attached.orders.topics for span in topic.ranges]
    group.check(
        all(span.order == pb.Orders.LOST for span in ranges), "nothing that it claims is granted"
    )
    await group.until(lambda: len(a.active) == 3, "the plan gives it partitions")
    group.check(all(token > 7 for token in a.held.values()), "tokens are above the one claimed")


@cases("2")
async def session_of_another_incarnation(group: GroupTrial) -> None:
    """A session id counts for its own incarnation only."""
    a = await group.alone(2)
    before = dict(a.held)
    b = group.member("w-b", 2)
    stream = await b.send_attach(session_id=a.session_id, held=held_topics(before))
    await group.until(lambda: bool(stream.said) or stream.has_ended, "it is answered")
    attached = stream.first("attached")
    group.check(
        attached is None or attached.session_id != a.session_id, "it does not get the session"
    )
    await a.beat_and_hear()
    group.check(not a.last.has_ended, "the owner's stream goes on")
    group.check(await a.commit(a.active[0], 1) == "NONE", "the owner commits")


@cases("3")
async def higher_epoch(group: GroupTrial) -> None:
    """A member that has seen a higher coordinator epoch meets a restored store: it gets a new
    session, what it claims is LOST, and tokens rise all the same."""
    a = await group.alone(2)
    session, old = a.session_id, dict(a.held)
    attached = await a.attached(coordinator_epoch=a.epoch + 1_000)
    group.check(attached.session_id != session, "it gets a new session")
    active = [
        span
        for topic in attached.orders.topics
        for span in topic.ranges
        if span.order == pb.Orders.ACTIVE
    ]
    group.check(not active, "what it claims is not confirmed")
    await group.until(lambda: len(a.active) == 2, "it is granted partitions anew")
    group.check(min(a.held.values()) > max(old.values()), "under higher tokens")


@cases("12")
async def claimed_token_is_not_believed(group: GroupTrial) -> None:
    """A claimed token above all that were granted does not raise those to come: tokens stay below
    2^53, and it is LOST."""
    a = group.member("w-a", 2)
    await a.attached(session_id="f" * 32, held=held_topics({0: 2**60}))
    await group.until(lambda: a.active == [0, 1], "it is granted partitions")
    group.check(max(a.held.values()) < 2**53, f"tokens are below 2^53: {a.held}")


@cases("3")
async def whole_on_request(group: GroupTrial) -> None:
    """A heartbeat with `whole` is answered with all orders, which name the heartbeat."""
    a = await group.alone(3)
    number = await a.send_beat(whole=True)
    await group.until(
        lambda: any(w.HasField("answers") and w.answers == number for w in a.all_orders),
        "Orders answer the heartbeat",
    )
    orders = next(w for w in a.all_orders if w.HasField("answers") and w.answers == number)
    group.check(not orders.HasField("based_on"), "it is the whole")
    group.check(a.active == [0, 1, 2], "it names everything")


@cases("3")
async def differences_follow(group: GroupTrial) -> None:
    """Differences are based on the version that was sent last."""
    a = await group.alone(2)
    await group.attached("w-b", 2)
    await group.until(lambda: bool(a.with_order(pb.Orders.DRAIN)), "one is to be drained")
    for before, after in zip(a.all_orders, a.all_orders[1:], strict=False):
        if after.HasField("based_on"):
            group.check(after.based_on == before.version, "based_on is the version before")
        group.check(after.version > before.version, "versions rise")
