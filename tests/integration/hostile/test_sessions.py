"""Hostile members of session groups, and operators who ask for nonsense, at a live server.

Each attack runs beside a member that behaves: that one is acknowledged, holds what it held, and the
shard keeps its invariants.
"""

from __future__ import annotations

import asyncio
import contextlib

import grpc
import pytest

from coordinator.v1 import admin_pb2, admin_pb2_grpc, errors_pb2, group_pb2, group_pb2_grpc
from coordinator.v1 import session_pb2 as pb
from tests.kit import requests
from tests.kit.serving import running
from tests.kit.session_member import orders_of
from tests.kit.session_stream import Stream

ATTACKS = []
LONGEST_NAME = "ü" * 249
GROUP = "attacked"


def attack(play):
    ATTACKS.append(play)
    return play


def topic(name: str = "t", partitions: int = 3) -> pb.Attach.Topic:
    return pb.Attach.Topic(name=name, partitions=partitions)


def held(first: int, last: int, token: int = 1) -> list[pb.HeldTopic]:
    found = pb.PartitionRange(first=first, last=last, first_token=token)
    return [pb.HeldTopic(name="t", partitions=[found])]


async def attached(channel, name="w-a", incarnation=b"1" * 16, **fields) -> Stream:
    """A member that holds everything."""
    stream = Stream(channel, GROUP)
    await stream.attach(name, incarnation, **fields)
    await stream.next("orders")
    return stream


async def refusal(channel, **fields) -> pb.SessionRefused:
    """The refusal of an Attach; INVALID_REQUEST, too, if the stream ends with such a status."""
    stream = Stream(channel, GROUP)
    try:
        await stream.open("w-z", b"9" * 16, **fields)
        return (await stream.next("refused")).refused
    except grpc.aio.AioRpcError:
        assert await stream.code() is grpc.StatusCode.INVALID_ARGUMENT
        return pb.SessionRefused(error_code=errors_pb2.INVALID_REQUEST)


async def acknowledged(stream: Stream, number: int) -> int:
    """Wait for the acknowledgement of a heartbeat; returns the number of messages until then."""
    before = len(stream.seen)
    while (await stream.next("heartbeat_ack")).heartbeat_ack.number < number:
        pass
    return len(stream.seen) - before


@attack
async def partitions_that_nobody_could_hold(channel):
    for partitions in (250_001, 10**9, 2**31 - 1):
        refused = await refusal(channel, topics=[topic(partitions=partitions)])
        assert refused.error_code == errors_pb2.INVALID_REQUEST
    many = [topic(f"t-{number}", 125_001) for number in range(2)]
    assert (await refusal(channel, topics=many)).error_code == errors_pb2.INVALID_REQUEST


@attack
async def claims_of_a_million_partitions(channel):
    refused = await refusal(channel, held=held(0, 10**6))
    assert refused.error_code == errors_pb2.INVALID_REQUEST
    pairs = [pb.PartitionRange(first=2 * n, last=2 * n + 1, first_token=7) for n in range(125_001)]
    refused = await refusal(channel, held=[pb.HeldTopic(name="t", partitions=pairs)])
    assert refused.error_code == errors_pb2.INVALID_REQUEST


@attack
async def claims_of_all_that_may_be_claimed(channel):
    """They are LOST, in messages of at most 1 MiB."""
    stream = Stream(channel, GROUP)
    claimed = [pb.PartitionRange(first=2 * n, last=2 * n, first_token=7) for n in range(125_000)]
    one = pb.HeldTopic(name="t", partitions=claimed)
    await stream.open("w-z", b"9" * 16, held=[one])
    lost: set[int] = set()
    while len(lost) < 125_000:
        message = await stream.call.read()
        assert message.ByteSize() <= 2**20
        orders = message.attached.orders if message.HasField("attached") else message.orders
        lost |= {
            partition
            for partition, order in orders_of(orders).items()
            if order.order == pb.Orders.LOST
        }
    assert lost == set(range(0, 250_000, 2))


@attack
async def names_of_topics(channel):
    """Any text of at most 249 characters without NUL is a name; commits under it are taken."""
    names = [LONGEST_NAME, ".", "..", "\N{SNOWMAN} \u202e", "a/b\n"]
    stream = await attached(channel, topics=[topic(name, 1) for name in names])
    orders = stream.seen[-1].orders
    assert {each.name for each in orders.topics} == set(names)
    calls = group_pb2_grpc.GroupCoordinatorStub(channel)
    request = group_pb2.OffsetCommitRequest(
        group_id=GROUP, member_id=stream.seen[0].attached.member_id
    )
    for each in orders.topics:
        committed = request.topics.add(name=each.name).partitions.add(committed_offset=5)
        committed.token = each.ranges[0].partitions.first_token
    answer = await calls.OffsetCommit(request)
    found = {p.error_code for each in answer.topics for p in each.partitions}
    assert found == {errors_pb2.NONE}
    for name in (LONGEST_NAME + "x", "", "t\0"):
        refused = await refusal(channel, topics=[topic(name, 1)])
        assert refused.error_code == errors_pb2.INVALID_REQUEST, name


@attack
async def a_thousand_topics(channel):
    names = [f"topic-{number:0>240}" for number in range(1_000)]
    stream = await attached(channel, topics=[topic(name, 2) for name in names])
    await stream.beat(1, whole=True)
    messages: list[str] = []
    while len(messages) < len(names):
        page = (await stream.next("orders")).orders
        if not page.HasField("answers"):
            continue  # A page of the grant.
        messages += [each.name for each in page.topics]
        assert page.is_part == (len(messages) < len(names))
        assert all(order.order == pb.Orders.ACTIVE for order in orders_of(page).values())
    assert messages == names


@attack
async def ten_thousand_heartbeats_at_once(channel):
    """One acknowledgement answers all that came before it was written."""
    stream = await attached(channel)
    for number in range(1, 10_001):
        await stream.beat(number)
    await acknowledged(stream, 10_000)
    assert len(stream.seen) < 10_010, "a message has one answer at most"


@attack
async def heartbeats_after_a_leave(channel):
    stream = await attached(channel)
    await stream.say(leave=pb.SessionLeave())
    # The end of the stream may overtake a message that is being written: gRPC fails the call then.
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        for number in range(1, 50):
            await stream.beat(number)
        assert (await stream.next("go_away")).go_away.reason == pb.GoAway.LEFT
    again = await attached(channel, incarnation=b"2" * 16)
    assert len(orders_of(again.seen[-1].orders)) == 3, "nothing was revived"


@attack
async def acknowledgements_of_what_nobody_knows(channel):
    stream = await attached(channel)
    kinds = (pb.SessionAck.RELEASED, pb.SessionAck.READY, pb.SessionAck.REFUSED)
    acks = [
        pb.SessionAck.Partition(
            topic="t" if number % 2 else "no", partition=number % 5, kind=kinds[number % 3],
            token=10**15 + number, handoff_id=10**15 + number, position=-number,
        )
        for number in range(40_000)
    ]  # fmt: skip
    await stream.say(ack=pb.SessionAck(partitions=acks))
    await stream.beat(1, whole=True)
    whole = (await stream.next("orders")).orders
    orders = {partition: order.order for partition, order in orders_of(whole).items()}
    assert orders == dict.fromkeys(range(3), pb.Orders.ACTIVE)


@attack
async def capacities_that_make_no_sense(channel):
    for capacity in (float("nan"), float("inf"), -float("inf"), -0.1):
        refused = await refusal(channel, capacity=capacity)
        assert refused.error_code == errors_pb2.INVALID_REQUEST
    wide = await attached(channel, capacity=1.7e308)
    narrow = Stream(channel, GROUP)
    await narrow.attach("w-b", b"2" * 16, capacity=5e-324)
    await narrow.beat(1)
    await acknowledged(narrow, 1)
    await wide.beat(1)
    await acknowledged(wide, 1)


@attack
async def policies_that_make_no_sense(channel):
    admin = admin_pb2_grpc.GroupAdminStub(channel)
    for wrong in (
        {"lease_ms": 0}, {"lease_ms": 1_999}, {"lease_ms": 300_001}, {"plan_interval_ms": -1},
        {"drain_timeout_ms": -1}, {"expected_members": -1}, {"handover_delay_ms": -5},
    ):  # fmt: skip
        policy = pb.GroupPolicy(**wrong)
        request = admin_pb2.SetGroupPolicyRequest(group_id=GROUP, policy=policy)
        answer = await admin.SetGroupPolicy(request)
        assert answer.error_code == errors_pb2.INVALID_REQUEST, wrong
        assert str(next(iter(wrong.values()))) in answer.error_message
        assert (await refusal(channel, wishes=policy)).error_code == errors_pb2.INVALID_REQUEST
    unknown = admin_pb2.SetGroupPolicyRequest(group_id=GROUP, defaults=["weather"])
    assert (await admin.SetGroupPolicy(unknown)).error_code == errors_pb2.INVALID_REQUEST


@attack
async def times_of_zero_and_of_centuries(channel):
    """They are allowed: a drain without time is forced at once, and it is free when released."""
    longest = 2**31 - 1
    wishes = pb.GroupPolicy(
        lease_ms=60_000, drain_timeout_ms=0, warm_timeout_ms=longest, plan_window_ms=0,
        plan_interval_ms=0, join_quiet_ms=0, join_window_ms=longest, initial_delay_ms=0,
        handover_delay_ms=longest, max_return_ms=longest,
    )  # fmt: skip
    stream = await attached(channel, wishes=wishes)
    other = Stream(channel, GROUP)
    await other.attach("w-b", b"2" * 16, wishes=wishes)
    seen = orders_of(stream.seen[-1].orders)
    while not any(item.order == pb.Orders.LOST for item in seen.values()):
        seen |= orders_of((await stream.next("orders")).orders)
    [(partition, each)] = [(p, item) for p, item in seen.items() if item.order == pb.Orders.LOST]
    ack = pb.SessionAck.Partition(
        topic="t", partition=partition, kind=pb.SessionAck.RELEASED, token=each.token,
        handoff_id=each.handoff_id,
    )  # fmt: skip
    await stream.say(ack=pb.SessionAck(partitions=[ack]))
    granted: dict[int, pb.Orders.Partition] = {}
    while not granted:  # It may have been told that nothing was free.
        granted = orders_of((await other.next("orders")).orders)
    assert {p: grant.order for p, grant in granted.items()} == {partition: pb.Orders.ACTIVE}


@attack
async def eviction_of_a_process_that_waits(channel):
    """It holds nothing, so there is nothing to take from it; the member of its name is another."""
    first = await attached(channel)
    waiting = Stream(channel, GROUP)
    told = await waiting.attach("w-a", b"2" * 16)
    assert told.standing == pb.Attached.WAITING
    admin = admin_pb2_grpc.GroupAdminStub(channel)
    request = admin_pb2.EvictMemberRequest(group_id=GROUP, member_id=told.member_id or "w-a-2")
    assert (await admin.EvictMember(request)).error_code == errors_pb2.UNKNOWN_MEMBER_ID
    await first.beat(1)
    await acknowledged(first, 1)
    await waiting.beat(1)
    await acknowledged(waiting, 1)


@attack
async def deletion_while_a_plan_is_computed(channel):
    """The group that is made anew gets a plan of its own, with higher tokens."""
    many = [topic(partitions=6_000)]
    stream = Stream(channel, GROUP)
    await stream.attach("w-a", b"1" * 16, topics=many)
    await stream.say(leave=pb.SessionLeave())
    assert (await stream.next("go_away")).go_away.reason == pb.GoAway.LEFT
    admin = admin_pb2_grpc.GroupAdminStub(channel)
    deleted = await admin.DeleteGroups(admin_pb2.DeleteGroupsRequest(groups_names=[GROUP]))
    assert deleted.results[0].error_code == errors_pb2.NONE
    again = await attached(channel, incarnation=b"2" * 16, topics=many)
    granted = orders_of(again.seen[-1].orders)
    while len(granted) < 6_000:  # A large plan is granted in slices.
        granted |= orders_of((await again.next("orders")).orders)
    assert set(granted) == set(range(6_000))


@attack
async def deletion_of_a_group_that_keeps_a_name(channel):
    stream = await attached(channel)
    await stream.say(
        leave=pb.SessionLeave(kind=pb.SessionLeave.RETURN, within_ms=200_000, reason="restart")
    )
    assert (await stream.next("go_away")).go_away.reason == pb.GoAway.LEFT
    admin = admin_pb2_grpc.GroupAdminStub(channel)
    request = admin_pb2.DeleteGroupsRequest(groups_names=[GROUP])
    answer = await admin.DeleteGroups(request)
    assert answer.results[0].error_code == errors_pb2.NON_EMPTY_GROUP
    evict = admin_pb2.EvictMemberRequest(group_id=GROUP, member_name="w-a")
    assert (await admin.EvictMember(evict)).error_code == errors_pb2.NONE
    answer = await admin.DeleteGroups(request)
    assert answer.results[0].error_code == errors_pb2.NONE


@attack
async def classic_requests_to_a_session_group(channel):
    """They are refused by name, and its member is not disturbed."""
    stream = await attached(channel)
    member_id = stream.seen[0].attached.member_id
    calls = group_pb2_grpc.GroupCoordinatorStub(channel)
    admin = admin_pb2_grpc.GroupAdminStub(channel)
    whose = {"group_id": GROUP, "member_id": member_id}
    sync = await calls.SyncGroup(group_pb2.SyncGroupRequest(generation_id=1, **whose))
    beat = await calls.Heartbeat(group_pb2.HeartbeatRequest(generation_id=1, **whose))
    leave = await calls.LeaveGroup(
        group_pb2.LeaveGroupRequest(
            group_id=GROUP,
            members=[group_pb2.LeaveGroupRequest.MemberIdentity(member_id=member_id)],
        )
    )
    refused = {errors_pb2.INCONSISTENT_GROUP_PROTOCOL, errors_pb2.UNKNOWN_MEMBER_ID}
    assert {sync.error_code, beat.error_code} <= refused
    assert {leave.error_code, *(member.error_code for member in leave.members)} & refused
    removed = await admin.RemoveMembers(
        admin_pb2.RemoveMembersRequest(
            group_id=GROUP,
            members=[admin_pb2.RemoveMembersRequest.Member(member_id=member_id)],
        )
    )
    assert {removed.error_code, *(member.error_code for member in removed.members)} & refused
    deleted = await admin.DeleteGroups(admin_pb2.DeleteGroupsRequest(groups_names=[GROUP]))
    assert deleted.results[0].error_code == errors_pb2.NON_EMPTY_GROUP
    await stream.beat(1)
    await acknowledged(stream, 1)


@attack
async def requests_of_sessions_to_a_classic_group(channel):
    calls = group_pb2_grpc.GroupCoordinatorStub(channel)
    joined = await calls.JoinGroup(
        requests.join(GROUP, session_timeout_ms=30_000, rebalance_timeout_ms=1_000)
    )
    refused = await refusal(channel)
    assert refused.error_code == errors_pb2.INCONSISTENT_GROUP_PROTOCOL
    assert "classic" in refused.error_message
    admin = admin_pb2_grpc.GroupAdminStub(channel)
    described = await admin.DescribeSessionGroup(
        admin_pb2.DescribeSessionGroupRequest(group_id=GROUP)
    )
    evicted = await admin.EvictMember(
        admin_pb2.EvictMemberRequest(group_id=GROUP, member_id=joined.member_id)
    )
    assert errors_pb2.NONE not in (described.error_code, evicted.error_code)
    assert described.error_message
    assert evicted.error_message


@pytest.mark.parametrize("play", ATTACKS, ids=lambda play: play.__name__)
async def test_the_server_bears(play):
    async with (
        running(group_initial_rebalance_delay_ms=30) as server,
        grpc.aio.insecure_channel(server.address) as mine,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        bystander = Stream(mine, "quiet")
        lease = pb.GroupPolicy(lease_ms=60_000, join_quiet_ms=0, initial_delay_ms=0)
        await bystander.attach("w-a", b"1" * 16, wishes=lease)
        holds = orders_of((await bystander.next("orders")).orders)
        await play(channel)
        await bystander.beat(1, whole=True)
        now = orders_of((await bystander.next("orders")).orders)
        assert {p: item.token for p, item in now.items()} == {
            p: holding.token for p, holding in holds.items()
        }
        for runner in server.node._runners.values():
            runner.shard.check()
