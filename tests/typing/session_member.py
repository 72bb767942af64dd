"""Members of session groups and `consume`, right and wrong: each `type: ignore` is needed."""

from __future__ import annotations

from typing import Any

from coordinator.client.member.session.changes import Draining, Granted, Lost, Warming

from coordinator.assignors import TopicPartition
from coordinator.client import (
    BlockingMember,
    BlockingSessionMember,
    FencedToken,
    GroupMember,
    MemberSettings,
    SessionMember,
)
from coordinator.sources import open_source
from coordinator.sources.group import Summary, consume


class Sums:
    def resume(self, partition: int, offset: int) -> None: ...
    def add(self, partition: int, batch: Any) -> None: ...
    def store(self, partition: int, offset: int) -> None: ...


async def changes_are_told_apart() -> None:
    shared: MemberSettings = {"member_name": "worker-1", "wishes": {"lease_ms": 10_000}}
    async with SessionMember("a:1", "g", {"t": 1}, **shared) as member:
        async for change in member.changes():
            match change:
                case Granted(partition, token, offset):
                    await member.commit({partition: offset + token})
                case Draining(partition, _, deadline_ms):
                    member.released(partition, position=deadline_ms or 0)
                case Lost(partition):
                    member.released(partition)
                case Warming(partition, offset=0):
                    member.refuse(change, "nothing to prepare from")
                case Warming(partition):
                    member.ready(change)
                    member.ready(partition)
                case _:
                    pass


def blocking_members_have_the_same_calls(key: TopicPartition) -> None:
    with BlockingSessionMember("a:1", "g", {"t": 1}, capacity=2.0, rack=None) as member:
        member.poll(timeout=1.0)
        if member.valid(key) and member.takes_work(key):
            try:
                member.commit({key: 1}, atomic=True, expected={key: -1})
            except FencedToken as error:
                print(error.holders)
        member.refuse(key, "no disk")


def members_of_both_protocols_consume(
    classic: BlockingMember, leased: BlockingSessionMember
) -> Summary:
    source = open_source("/logs")
    consume(classic, source, Sums())
    return consume(leased, source, Sums(), rows_per_commit=10, forever=True)


async def a_forgotten_await_is_an_error(member: SessionMember, key: TopicPartition) -> None:
    member.commit({key: 5})  # type: ignore[unused-coroutine]
    member.close()  # type: ignore[unused-coroutine]


def wrong_settings_are_errors() -> None:
    SessionMember("a:1", "g", {"t": 1}, session_timeout=45_000)  # type: ignore[call-arg]
    BlockingSessionMember("a:1", "g", {"t": 1}, capacity="x")  # type: ignore[arg-type]
    SessionMember("a:1", "g", {"t": 1}, wishes={"mode": "hot"})  # type: ignore[typeddict-item]
    GroupMember("a:1", "g", {"t": 1}, wish={})  # type: ignore[call-arg]


def asynchronous_members_do_not_consume(member: SessionMember) -> None:
    consume(member, open_source("/logs"), Sums())  # type: ignore[arg-type]
    consume(member, open_source("/logs"), object())  # type: ignore[arg-type]
