"""Leases: until when the member acts."""

from __future__ import annotations

import asyncio

from tests.protocol.sessions.member_rules.coordinator import MemberTrial
from tests.protocol.sessions.member_rules.stream import MemberStream, Told
from tests.protocol.sessions.rules import Cases
from tests.protocol.sessions.trial import now_s

cases: Cases[MemberTrial] = Cases()


async def _fall_silent(trial: MemberTrial) -> tuple[MemberStream, float]:
    """Acknowledge one heartbeat, and no more; returns when it came."""
    trial.lease_ms = trial.short_lease_ms
    stream = await trial.attached({0: 10, 1: 11})
    await trial.until(lambda: bool(stream.heartbeats), "a heartbeat comes")
    stream.acks = False
    return stream, stream.renewed_s


async def _suspended(trial: MemberTrial) -> tuple[MemberStream, float]:
    stream, renewed_s = await _fall_silent(trial)
    await trial.event("suspended", 0)
    await trial.event("suspended", 1)
    return stream, renewed_s


@cases("4")
async def suspends(trial: MemberTrial) -> None:
    """Without acknowledgements: no new work from two thirds of the lease, no effect from nine
    tenths, counted from when the last acknowledged heartbeat was sent; heartbeats go on."""
    _, renewed_s = await _fall_silent(trial)
    await asyncio.sleep(max(0.0, renewed_s + trial.lease_s * 2 / 3 + 0.005 - now_s()))
    _, takes_work = await trial.validity(0)
    trial.check(not takes_work, "at two thirds no new work is begun")
    await trial.is_invalid_in_time(0, renewed_s)
    await trial.event("suspended", 0)
    error = await trial.commit(0, 5)
    trial.check(error != "NONE" and not trial.commits, "a commit is refused, and not sent")
    trial.check(not trial.said("lost"), "suspended is not lost")
    seen = trial.received
    await trial.until(lambda: trial.received > seen, "it heartbeats on, or attaches again")


@cases("4")
async def suspends_without_a_stream(trial: MemberTrial) -> None:
    """A member that cannot reach its coordinator is suspended all the same, and keeps what it
    holds."""
    stream, renewed_s = await _fall_silent(trial)
    stream.end()
    second = await trial.attaching(2)
    await trial.is_invalid_in_time(0, renewed_s)
    trial.check(not trial.said("lost"), "suspended is not lost")
    trial.answer(second, [Told(0, token=10), Told(1, token=11)])
    await asyncio.sleep(0.2)
    trial.check(not trial.said("lost"), "what is confirmed is not lost")


@cases("4")
async def late_ack(trial: MemberTrial) -> None:
    """An ack that comes after nine tenths of the lease renews nothing: it asks for the whole, or
    attaches again, and goes on only with the whole that answers."""
    stream, _ = await _suspended(trial)
    seen = len(stream.heartbeats)
    stream.acknowledge(stream.heartbeats[-1].number)
    await trial.until(
        lambda: (
            (trial.now is not stream and trial.now.attach is not None)
            or any(beat.whole for beat in stream.heartbeats[seen:])
        ),
        "it asks for the whole, or attaches again",
    )
    valid, _ = await trial.validity(0)
    trial.check(not valid, "the ack alone renews nothing")
    told = [Told(0, token=10), Told(1, token=19)]
    if trial.now is stream:
        stream.acks = True
        beat = next(beat for beat in stream.heartbeats[seen:] if beat.whole)
        stream.acknowledge(beat.number)
        trial.whole(stream, told, answers=beat.number)
    else:
        trial.answer(trial.now, told)
    await trial.event("resumed", 0)
    valid, _ = await trial.validity(0)
    trial.check(valid, "the same token goes on")
    await trial.event("lost", 1)
    granted = await trial.event("granted", 1)
    trial.check(granted.get("token") == 19, "another token: lost, then granted")


@cases("4")
async def resumed_by_attach(trial: MemberTrial) -> None:
    """A suspended member that attaches again goes on with what the whole confirms."""
    stream, _ = await _suspended(trial)
    stream.end()
    await trial.until(lambda: trial.now is not stream and trial.now.attach is not None,
                      "it attaches again")  # fmt: skip
    trial.answer(trial.now, [Told(0, token=10)])
    await trial.event("resumed", 0)
    await trial.event("lost", 1)
    valid, _ = await trial.validity(0)
    trial.check(valid, "it is valid")


@cases("4")
async def unasked_whole(trial: MemberTrial) -> None:
    """Orders in full that answer nothing do not revive a suspended partition."""
    stream, _ = await _suspended(trial)
    trial.whole(stream, [Told(0, token=10), Told(1, token=11)])
    await asyncio.sleep(0.3)
    valid, _ = await trial.validity(0)
    trial.check(not valid, "it stays suspended")
    trial.check(not trial.said("resumed"), "and is not told otherwise")


@cases("6")
async def expiring(trial: MemberTrial) -> None:
    """A partition that an ack lists is not renewed again under its token, also if a later ack does
    not list it; the others are."""
    trial.lease_ms = trial.short_lease_ms
    stream = await trial.attached({0: 10, 1: 11})
    await trial.until(lambda: len(stream.heartbeats) >= 2, "heartbeats come")
    stream.expiring = [0]
    renewed_s = stream.renewed_s
    seen = len(stream.heartbeats)
    await trial.until(lambda: len(stream.heartbeats) > seen, "the next heartbeat comes")
    stream.expiring = []
    await trial.is_invalid_in_time(0, renewed_s)
    valid, takes_work = await trial.validity(1)
    trial.check(valid and takes_work, "the other one is renewed")


@cases("6")
async def not_renewed_then_granted(trial: MemberTrial) -> None:
    """A partition that was not renewed is renewed again under a new token."""
    trial.lease_ms = trial.short_lease_ms
    stream = await trial.attached({0: 10})
    stream.expiring = [0]
    await trial.until(lambda: bool(stream.heartbeats), "a heartbeat comes")
    await trial.event("suspended", 0)
    stream.expiring = []
    trial.differ(stream, [Told(0, token=20)])
    granted = await trial.event("granted", 0)
    trial.check(granted.get("token") == 20, "the new token")
    seen = len(stream.heartbeats)
    await trial.until(lambda: len(stream.heartbeats) >= seen + 5, "a lease goes by")
    valid, _ = await trial.validity(0)
    trial.check(valid, "it is renewed")
