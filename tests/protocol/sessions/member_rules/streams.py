"""Streams: attach, heartbeat, reconnect, stop."""

from __future__ import annotations

import asyncio
import itertools

from coordinator.v1 import errors_pb2
from coordinator.v1 import session_pb2 as pb
from tests.protocol.sessions.member_rules.coordinator import (
    GROUP,
    PARTITIONS,
    SESSION,
    MemberTrial,
)
from tests.protocol.sessions.member_rules.stream import MemberStream, Told
from tests.protocol.sessions.rules import Cases
from tests.protocol.sessions.trial import TOPIC, now_s

cases: Cases[MemberTrial] = Cases()
RELEASED = pb.SessionAck.RELEASED


def held(topics: object) -> dict[int, int]:
    """Partitions and tokens of a held set."""
    found: dict[int, int] = {}
    for topic in topics:  # type: ignore[attr-defined]  # Repeated HeldTopic.
        for each in topic.partitions:
            for number, partition in enumerate(range(each.first, each.last + 1)):
                found[partition] = each.first_token + number
    return found


async def _attach(trial: MemberTrial, number: int) -> tuple[MemberStream, pb.Attach]:
    stream = await trial.attaching(number)
    attach = stream.attach
    assert attach is not None
    return stream, attach


@cases("3")
async def first_attach(trial: MemberTrial) -> None:
    """The first message says who it is, what it declares, and that it holds nothing."""
    trial.start("worker-1")
    _, attach = await _attach(trial, 1)
    trial.check(attach.group_id == GROUP, "the group is the one that it was told")
    trial.check(attach.member_name == "worker-1", "the member's name is the one that it was told")
    trial.check(len(attach.incarnation.id) == 16, "the incarnation has 128 bits")
    trial.check(attach.incarnation.started_at_ms > 0, "and the time of its start")
    trial.check(attach.session_id == "", "no session yet")
    trial.check(not attach.held, "it holds nothing")
    topics = [(topic.name, topic.partitions) for topic in attach.topics]
    trial.check(topics == [(TOPIC, PARTITIONS)], f"it declares what it was told: {topics}")


@cases("4")
async def heartbeats(trial: MemberTrial) -> None:
    """Heartbeats come every quarter of a lease, their numbers rise, they name the version that was
    taken in, and at least every tenth has the whole held set."""
    trial.lease_ms = trial.short_lease_ms // 2
    stream = await trial.attached({0: 10, 1: 11})
    await trial.until(lambda: len(stream.heartbeats) >= 24, "24 heartbeats come")
    beats = stream.heartbeats
    numbers = [beat.number for beat in beats]
    trial.check(numbers == sorted(set(numbers)), f"numbers rise: {numbers}")
    trial.check(numbers[0] >= 1, "Attach is number 0 of its stream")
    last = beats[-1]
    trial.check(
        (last.applied_epoch, last.applied_version) == (trial.epoch, trial.version),
        "the epoch and version that were taken in",
    )
    with_held = [number for number, beat in enumerate(beats) if beat.HasField("held")]
    gaps = [b - a for a, b in itertools.pairwise(with_held)]
    trial.check(len(with_held) >= 2 and max(gaps) <= 10, f"every tenth has `held`: {with_held}")
    for number in with_held:
        told = held(beats[number].held.topics)
        trial.check(told == {0: 10, 1: 11}, f"`held` is the whole: {told}")


@cases("4")
async def held_after_a_change(trial: MemberTrial) -> None:
    """The heartbeat after a change has the whole held set."""
    stream = await trial.attached({0: 10})
    trial.differ(stream, [Told(1, token=12)])
    await trial.event("granted", 1)
    trial.lease_ms = trial.short_lease_ms
    stream.end()
    stream, attach = await _attach(trial, 2)
    trial.check(held(attach.held) == {0: 10, 1: 12}, "an Attach has the whole held set")
    trial.answer(stream, [Told(0, token=10), Told(1, token=12)])
    trial.differ(stream, [Told(2, token=13)])
    await trial.event("granted", 2)
    count = len(stream.heartbeats)
    await trial.until(lambda: len(stream.heartbeats) > count, "the next heartbeat comes")
    beat = stream.heartbeats[count]
    trial.check(beat.HasField("held"), "it has `held`")
    trial.check(held(beat.held.topics) == {0: 10, 1: 12, 2: 13}, "the whole of it")


@cases("3")
async def resumes(trial: MemberTrial) -> None:
    """A stream that ends is followed by one of the same session, with a higher number and the whole
    held set; nothing is lost by it."""
    stream = await trial.attached({0: 10, 1: 11})
    _, first = await _attach(trial, 1)
    stream.end()
    stream, again = await _attach(trial, 2)
    trial.check(again.incarnation.id == first.incarnation.id, "the incarnation is the same")
    trial.check(again.session_id == SESSION, "it names the session")
    trial.check(again.stream_number > first.stream_number, "stream numbers rise")
    trial.check(held(again.held) == {0: 10, 1: 11}, "it holds what it held")
    trial.check(again.coordinator_epoch == trial.epoch, "it names the epoch that it has seen")
    trial.answer(stream, [Told(0, token=10), Told(1, token=11)])
    valid, takes_work = await trial.validity(0)
    trial.check(valid and takes_work, "confirmed, it goes on")
    trial.check(not trial.said("lost"), "nothing is lost")
    trial.check(not trial.said("granted"), "nothing is granted anew")


@cases("3")
async def resumes_unanswered(trial: MemberTrial) -> None:
    """A first Attached that never came: the next Attach is of the same incarnation."""
    trial.start()
    stream, first = await _attach(trial, 1)
    stream.end()
    _, again = await _attach(trial, 2)
    trial.check(again.incarnation.id == first.incarnation.id, "the incarnation is the same")
    trial.check(again.stream_number > first.stream_number, "stream numbers rise")


@cases("4")
async def heartbeat_numbers_go_on(trial: MemberTrial) -> None:
    """Heartbeat numbers count over the streams of a session."""
    trial.lease_ms = trial.short_lease_ms // 2
    stream = await trial.attached({0: 10})
    await trial.until(lambda: len(stream.heartbeats) >= 2, "heartbeats come")
    stream.end()
    stream, _ = await _attach(trial, 2)
    highest = max(beat.number for beat in trial.streams[0].heartbeats)
    trial.answer(stream, [Told(0, token=10)])
    await trial.until(lambda: bool(stream.heartbeats), "a heartbeat comes on the new stream")
    trial.check(stream.heartbeats[0].number > highest, "its number is above those before")


@cases("3")
async def unknown_member(trial: MemberTrial) -> None:
    """UNKNOWN_MEMBER_ID: everything is lost, and it attaches anew without the session."""
    stream = await trial.attached({0: 10, 1: 11})
    stream.refuse(errors_pb2.UNKNOWN_MEMBER_ID)
    await trial.event("lost", 0)
    await trial.event("lost", 1)
    stream, again = await _attach(trial, 2)
    trial.check(again.session_id == "", "without session_id")
    trial.answer(stream, [], session_id="0" * 32)
    valid, _ = await trial.validity(0)
    trial.check(not valid, "nothing that was lost is valid")
    trial.differ(stream, [Told(0, token=30)])
    granted = await trial.event("granted", 0)
    trial.check(granted.get("token") == 30, "it may be granted again, under a new token")


async def _stops(trial: MemberTrial, stream: MemberStream) -> None:
    await trial.event("stopping")
    await asyncio.sleep(1.0)
    trial.check(len(trial.streams) == 1, "it opens no stream any more")
    trial.check(stream.has_ended, "its stream has ended")


@cases("3")
async def stops_when_fenced(trial: MemberTrial) -> None:
    """FENCED_INSTANCE_ID: stop."""
    stream = await trial.attached({0: 10})
    stream.refuse(errors_pb2.FENCED_INSTANCE_ID)
    await trial.event("lost", 0)
    await _stops(trial, stream)


@cases("3")
async def stops_when_malformed(trial: MemberTrial) -> None:
    """INVALID_REQUEST: stop."""
    trial.start()
    stream = await trial.attaching()
    stream.refuse(errors_pb2.INVALID_REQUEST)
    await _stops(trial, stream)


@cases("3")
async def stops_when_superseded(trial: MemberTrial) -> None:
    """GoAway(SUPERSEDED): another process has its place. Stop."""
    stream = await trial.attached({0: 10})
    stream.go_away(pb.GoAway.SUPERSEDED)
    await trial.event("lost", 0)
    await _stops(trial, stream)


@cases("3")
async def goes_on_after_shutdown(trial: MemberTrial) -> None:
    """GoAway(SHUTTING_DOWN): it keeps everything, and attaches again."""
    stream = await trial.attached({0: 10})
    stream.go_away(pb.GoAway.SHUTTING_DOWN)
    stream, again = await _attach(trial, 2)
    trial.check(again.session_id == SESSION, "the session goes on")
    trial.check(held(again.held) == {0: 10}, "it holds what it held")
    trial.check(not trial.said("lost"), "nothing is lost")


@cases("3")
async def follows_to_another_node(trial: MemberTrial) -> None:
    """GoAway(MOVED), and NOT_COORDINATOR: it finds the coordinator, and attaches there."""
    stream = await trial.attached({0: 10})
    port = trial.listen()
    stream.go_away(pb.GoAway.MOVED, port)
    stream, again = await _attach(trial, 2)
    trial.check(stream.port == port, "it attaches at the other node")
    trial.check(again.session_id == SESSION, "the session goes on")
    finds = trial.finds
    stream.refuse(errors_pb2.NOT_COORDINATOR)
    await _attach(trial, 3)
    trial.check(trial.finds > finds, "after NOT_COORDINATOR it asks who coordinates the group")
    trial.check(not trial.said("lost"), "nothing is lost")


@cases("3")
async def waits_as_told(trial: MemberTrial) -> None:
    """`retry_after_ms` of a refusal is waited for."""
    trial.start()
    stream = await trial.attaching()
    refused_s = now_s()
    stream.refuse(errors_pb2.COORDINATOR_LOAD_IN_PROGRESS, retry_after_ms=1_000)
    stream = await trial.attaching(2)
    trial.not_before(stream.heard[0].at_s, refused_s, 1.0, "it attaches again")


@cases("3")
async def lower_epochs_are_ignored(trial: MemberTrial) -> None:
    """Messages of a lower coordinator epoch than the session has seen are ignored."""
    trial.lease_ms = trial.short_lease_ms
    stream = await trial.attached({0: 10, 1: 11})
    await trial.until(lambda: bool(stream.heartbeats), "a heartbeat comes")
    stream.acks = False
    renewed_s = stream.renewed_s
    seen = len(stream.heartbeats)
    stream.orders(trial.version + 1, [Told(1, token=11)], epoch=trial.epoch - 1)
    await trial.until(lambda: len(stream.heartbeats) > seen, "the next heartbeat comes")
    stream.acknowledge(stream.heartbeats[-1].number, epoch=trial.epoch - 1)
    trial.check(not trial.said("lost"), "an old Orders takes nothing away")
    await trial.is_invalid_in_time(0, renewed_s)


@cases("5")
async def waits_for_its_name(trial: MemberTrial) -> None:
    """WAITING: it heartbeats and holds nothing; when it has inherited, it works."""
    trial.lease_ms = trial.short_lease_ms
    trial.start("worker-1")
    stream = await trial.attaching()
    trial.answer(
        stream, [], standing=pb.Attached.WAITING, retry_after_ms=2_000, why="the name is in use"
    )
    await trial.until(lambda: bool(stream.heartbeats), "it heartbeats while it waits")
    trial.check(not trial.said("granted"), "it holds nothing")
    trial.answer(stream, [Told(0, token=20)])
    granted = await trial.event("granted", 0)
    trial.check(granted.get("token") == 20, "it has inherited")
    trial.check(len(trial.streams) == 1, "on the same stream")


@cases("5")
async def leaves(trial: MemberTrial) -> None:
    """Leave(NOW): it says so, and ends."""
    stream = await trial.attached({0: 10})
    leaving = asyncio.create_task(trial.member.close())
    await trial.until(lambda: stream.leave is not None, "it says Leave")
    leave = stream.leave
    assert leave is not None
    trial.check(leave.kind == pb.SessionLeave.NOW, "NOW")
    stream.go_away(pb.GoAway.LEFT)
    await leaving
    await trial.until(trial.has_ended, "it ends, without an error")
    trial.check(len(trial.streams) == 1, "it opens no other stream")


@cases("5")
async def leaves_with_a_drain(trial: MemberTrial) -> None:
    """Leave(DRAIN): it hands over what it is ordered to, and ends after GoAway(DRAINED)."""
    stream = await trial.attached({0: 10})
    trial.member.drain(20_000)
    await trial.until(lambda: stream.leave is not None, "it says Leave")
    leave = stream.leave
    assert leave is not None
    trial.check(
        leave.kind == pb.SessionLeave.DRAIN and 0 < leave.within_ms <= 20_000, "DRAIN, in its time"
    )
    trial.differ(stream, [Told(0, pb.Orders.DRAIN, 10, 7, remaining_ms=19_000)])
    await trial.event("draining", 0)
    trial.member.released(trial.holding(0), 5)
    await trial.until(lambda: stream.count(RELEASED, 0, token=10) == 1, "it says RELEASED")
    stream.go_away(pb.GoAway.DRAINED)
    await trial.until(trial.has_ended, "it ends, without an error")
