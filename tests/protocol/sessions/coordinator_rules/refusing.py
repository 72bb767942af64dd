"""Kinds of groups, commits under tokens, and bad input."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from coordinator.v1 import session_pb2 as pb
from tests.protocol.sessions.coordinator_rules.group import GroupTrial
from tests.protocol.sessions.coordinator_rules.messages import held_topics
from tests.protocol.sessions.rules import Cases

cases: Cases[GroupTrial] = Cases()


@cases("2")
async def classic_member_in_a_session_group(group: GroupTrial) -> None:
    """A classic JoinGroup to a session group with members is INCONSISTENT_GROUP_PROTOCOL."""
    await group.alone(2)
    error = await group.join()
    group.check(error == "INCONSISTENT_GROUP_PROTOCOL", f"it was {error}")


@cases("2")
async def session_member_in_a_classic_group(group: GroupTrial) -> None:
    """An Attach to a classic group with members is INCONSISTENT_GROUP_PROTOCOL, and says so."""
    group.check(await group.join() == "NONE", "a classic member joins")
    a = group.member("w-a")
    refused = await a.attach_refused("INCONSISTENT_GROUP_PROTOCOL")
    group.check(bool(refused.error_message), "the message says which kind it is")


@cases("2")
async def an_empty_group_changes_kind(group: GroupTrial) -> None:
    """An Empty group changes kind with the next member, and keeps its offsets."""
    a = await group.alone(1)
    group.check(await a.commit(0, 33) == "NONE", "a commit")
    await a.send_leave("NOW")
    await group.until(lambda: a.go_away == pb.GoAway.LEFT, "it has left")
    group.check(await group.join() == "NONE", "a classic member joins")
    b = group.member("w-b", 1)
    await b.attach_refused("INCONSISTENT_GROUP_PROTOCOL")


@cases("8")
async def commits_need_the_token(group: GroupTrial) -> None:
    """A commit counts under the token of the holding: another is FENCED_TOKEN, none is
    INVALID_REQUEST, an unknown member is UNKNOWN_MEMBER_ID."""
    a, b = await group.pair()
    partition, token = next(iter(a.held.items()))
    group.check(await a.commit(partition, 5) == "NONE", "the holder's token counts")
    group.check(
        await a.commit(partition, 6, token=token + 1_000) == "FENCED_TOKEN", "another: fenced"
    )
    error = await b.commit(partition, 6, token=token)
    group.check(error == "FENCED_TOKEN", f"another member's is fenced (was {error})")
    group.check(group.last_holder == (a.member_id, a.name), "the error names the holder")
    error = await group.commit(a.member_id, partition, 6, None)
    group.check(error == "INVALID_REQUEST", f"without a token: INVALID_REQUEST (was {error})")
    error = await group.commit("nobody", partition, 6, token)
    group.check(error == "UNKNOWN_MEMBER_ID", f"of nobody: UNKNOWN_MEMBER_ID (was {error})")
    error = await group.commit("", partition, 6, None)
    group.check(error != "NONE", "an outsider does not commit while there are members")


@cases("8")
async def commits_end_with_the_release(group: GroupTrial) -> None:
    """After RELEASED was taken in, nothing under that token is accepted."""
    a, _, partition = await group.handing_over()
    token = a.held[partition]
    group.check(await a.commit(partition, 70) == "NONE", "accepted before the release")
    await a.send_ack(partition, position=70)
    await a.beat_and_hear()
    error = await a.commit(partition, 71, token=token)
    group.check(error == "FENCED_TOKEN", f"fenced after it (was {error})")


@cases("6")
async def tokens_outlive_the_group(group: GroupTrial) -> None:
    """Tokens of a group that was deleted and made again go on above the old ones."""
    a = await group.alone(3)
    top = max(a.held.values())
    await a.send_leave("NOW")
    await group.until(lambda: a.go_away == pb.GoAway.LEFT, "it has left")
    group.check(await group.delete() == "NONE", "the group is deleted")
    b = await group.attached("w-b", 3)
    await group.until(lambda: len(b.active) == 3, "the new group's member has everything")
    group.check(min(b.held.values()) > top, "its tokens are above")


@cases("12")
async def message_before_attach(group: GroupTrial) -> None:
    """A first message that is no Attach ends the stream with INVALID_ARGUMENT."""
    a = group.member("w-a")
    stream = a.open()
    await a.send_beat()
    await group.until(lambda: stream.has_ended, "the stream ends")
    group.check(
        stream.status is grpc.StatusCode.INVALID_ARGUMENT or stream.first("refused") is not None,
        f"with a refusal: {stream.status}",
    )


@cases("12")
async def two_attaches_on_a_stream(group: GroupTrial) -> None:
    """A second Attach on a stream is refused; the member lives, and resumes."""
    a, b = await group.pair()
    stream, session = a.last, a.session_id
    attach = pb.Attach(
        group_id=group.group_id,
        member_name=a.name,
        incarnation=pb.Attach.Incarnation(id=a.incarnation),
        stream_number=9,
    )
    await a.send(pb.SessionRequest(attach=attach))
    await group.until(lambda: stream.has_ended, "the stream ends")
    attached = await a.attached()
    group.check(attached.session_id == session, "the session goes on")
    await b.beat_and_hear()
    group.check(not b.last.has_ended, "others are not disturbed")


@cases("12")
async def malformed_attaches(group: GroupTrial) -> None:
    """Attaches that make no sense are refused, and disturb nobody."""
    a, b = await group.pair()
    nan, infinite = float("nan"), float("inf")
    topic = pb.Attach.Topic
    range_ = pb.PartitionRange
    bad: list[dict[str, Any]] = [
        {"capacity": nan},
        {"capacity": infinite},
        {"capacity": -1.0},
        {"topics": [topic(name="t", partitions=1_000_000_000)]},
        {"topics": [topic(name="t", partitions=-1)]},
        {"topics": [topic(name="t", partitions=1), topic(name="t", partitions=2)]},
        {"incarnation": pb.Attach.Incarnation()},
        {"held": [pb.HeldTopic(name="t", partitions=[range_(first=-1, last=-1, first_token=1)])]},
        {"held": [pb.HeldTopic(name="t", partitions=[range_(first=0, last=2**31 - 1)])]},
        {"max_partitions": -1},
        {"wishes": pb.GroupPolicy(lease_ms=1)},
        {"wishes": pb.GroupPolicy(lease_ms=10_000_000)},
    ]
    for number, fields in enumerate(bad):
        c = group.member(f"w-bad-{number}")
        stream = await c.send_attach(**fields)
        await group.until(lambda s=stream: s.has_ended or bool(s.said), f"{fields} is answered")  # type: ignore[misc]
        if "wishes" in fields and stream.first("attached") is not None:
            await c.close()  # Wishes count for the first member alone.
            continue
        group.check(
            stream.first("refused") is not None
            or stream.status in (grpc.StatusCode.INVALID_ARGUMENT, None),
            f"{fields} is refused: status {stream.status}",
        )
        group.check(stream.first("attached") is None, f"{fields} is not admitted")
        await c.close()
    await asyncio.gather(a.beat_and_hear(), b.beat_and_hear())
    group.check(not (a.last.has_ended or b.last.has_ended), "nobody is disturbed")


@cases("12")
async def malformed_messages(group: GroupTrial) -> None:
    """Acks and held sets of what nobody holds change nothing."""
    a, b = await group.pair()
    kept = dict(b.held)
    for partition, token in ((0, 10**15), (10**6, 1)):
        each = pb.SessionAck.Partition(
            topic="t", partition=partition, kind=pb.SessionAck.RELEASED, token=token
        )
        await a.send(pb.SessionRequest(ack=pb.SessionAck(partitions=[each])))
    each = pb.SessionAck.Partition(topic="no", partition=0, kind=pb.SessionAck.READY, handoff_id=7)
    await a.send(pb.SessionRequest(ack=pb.SessionAck(partitions=[each])))
    held = pb.SessionHeartbeat.Held(topics=held_topics({**a.held, 77: 5}))
    await a.send_beat(held=held)
    await b.beat_and_hear()
    group.check(b.held == kept and not b.last.has_ended, "the other member is not disturbed")
    await a.beat_and_hear()
    group.check(len(a.active) == 2, "it holds what it held")


@cases("12")
async def negative_partition(group: GroupTrial) -> None:
    """A negative partition ends its stream, and costs its member nothing else."""
    a, b = await group.pair()
    each = pb.SessionAck.Partition(topic="t", partition=-1, kind=pb.SessionAck.RELEASED, token=1)
    await a.send(pb.SessionRequest(ack=pb.SessionAck(partitions=[each])))
    await group.until(lambda: a.last.has_ended, "the stream ends")
    await b.beat_and_hear()
    group.check(not b.last.has_ended, "the other member is not disturbed")
    mine = dict(a.held)
    await a.attached()
    group.check({p: a.orders[p].token for p in a.active} == mine, "it holds what it held")


@cases("12")
async def huge_held_set(group: GroupTrial) -> None:
    """A held set of two thousand million partitions costs its sender the stream, and nobody
    else."""
    a, b = await group.pair()
    huge = [pb.PartitionRange(first=0, last=2**31 - 2, first_token=1)]
    held = pb.SessionHeartbeat.Held(topics=[pb.HeldTopic(name="t", partitions=huge)])
    await a.send_beat(held=held)
    await b.beat_and_hear()
    group.check(not b.last.has_ended, "the other member is not disturbed")


@cases("12")
async def cloned_process(group: GroupTrial) -> None:
    """A clone, with the same incarnation and stream number, is refused."""
    a = await group.alone(2)
    clone = group.member("w-a", 2)
    clone.incarnation, clone.started_at_ms = a.incarnation, a.started_at_ms
    await clone.attach_refused("FENCED_INSTANCE_ID")
    await a.beat_and_hear()
    group.check(a.active == [0, 1], "the original goes on")


@cases("12")
async def flapping_member(group: GroupTrial) -> None:
    """A member that attaches again and again is put off by retry_after; others get their acks."""
    a, b = await group.pair()
    session = a.session_id
    refused = 0
    for _ in range(30):
        stream = await a.send_attach()
        await group.until(lambda s=stream: s.has_ended or bool(s.said), "it is answered")  # type: ignore[misc]
        said = stream.first("refused")
        refused += said is not None and said.retry_after_ms > 0
    group.check(refused > 0, "it is put off, with retry_after")
    await b.beat_and_hear()
    group.check(not b.last.has_ended, "the other one is not disturbed")
    group.check(a.session_id == session, "its session goes on")
