"""Members of session groups and `consume`, right and wrong: each `type: ignore` is needed."""

from __future__ import annotations

from typing import Any

from coordinator.assignors import TopicPartition
from coordinator.client import (
    BlockingMember,
    FencedToken,
    Granted,
    Lost,
    Member,
    MemberSettings,
    Revoking,
    Warming,
)
from coordinator.sources import open_source
from coordinator.sources.group import Summary, consume


class Sums:
    def resume(self, partition: int, offset: int) -> None: ...
    def add(self, partition: int, batch: Any) -> None: ...
    def store(self, partition: int, offset: int) -> None: ...


async def events_are_told_apart() -> None:
    shared: MemberSettings = {"member_name": "worker-1", "wishes": {"lease_ms": 10_000}}
    async with Member("a:1", "g", {"t": 1}, protocol="session", **shared) as member:
        async for event in member.events():
            match event:
                case Granted(holdings):
                    ends = {held.partition: held.offset + held.token for held in holdings}
                    await member.commit(ends, holdings=holdings)
                case Revoking(holdings, deadline_ms):
                    for held in holdings:
                        member.released(held, position=deadline_ms or 0)
                case Lost(holdings, reason):
                    print(reason)
                    member.released(holdings)
                case Warming(holdings):
                    member.refuse(holdings[0], "nothing to prepare from")
                    member.ready(holdings[1:])
                case _:
                    pass


def blocking_members_have_the_same_calls(key: TopicPartition) -> None:
    with BlockingMember(
        "a:1", "g", {"t": 1}, protocol="session", capacity=2.0, rack=None
    ) as member:
        member.poll(timeout=1.0)
        if member.valid(key) and member.takes_work(key):
            try:
                member.commit({key: 1}, atomic=True, expected={key: -1})
            except FencedToken as error:
                print(error.holders)
        member.refuse(member.holding(key), "no disk")
        member.released(key)  # type: ignore[arg-type]


def members_of_both_protocols_consume(classic: BlockingMember, leased: BlockingMember) -> Summary:
    source = open_source("/logs")
    consume(classic, source, Sums())
    return consume(leased, source, Sums(), rows_per_commit=10, forever=True)


async def a_forgotten_await_is_an_error(member: Member, key: TopicPartition) -> None:
    member.commit({key: 5})  # type: ignore[unused-coroutine]
    member.close()  # type: ignore[unused-coroutine]


def wrong_settings_are_errors() -> None:
    Member("a:1", "g", {"t": 1}, protocol="leases")  # type: ignore[arg-type]
    Member("a:1", "g", {"t": 1}, protocol="session", give_back="never")  # type: ignore[arg-type]
    BlockingMember("a:1", "g", {"t": 1}, protocol="session", lease_ms=3)  # type: ignore[call-arg]
    Member("a:1", "g", {"t": 1}, wishes={"mode": "hot"}, protocol="session")  # type: ignore[typeddict-item]


def asynchronous_members_do_not_consume(member: Member) -> None:
    consume(member, open_source("/logs"), Sums())  # type: ignore[arg-type]
    consume(member, open_source("/logs"), object())  # type: ignore[arg-type]
