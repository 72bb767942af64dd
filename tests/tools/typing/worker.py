"""Workers as users write them, right and wrong: each `type: ignore` has to be needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from coordinator.client import (
    BlockingMember,
    BlockingPartition,
    Partition,
    PartitionRevoked,
    Worker,
)
from coordinator.sources import GroupReadable, open_source
from coordinator.sources.group import ends_of, in_group

worker = Worker("127.0.0.1:7400", "billing", topics={"invoices": 12}, session_timeout_ms=45_000)


@worker.handler
async def handle(p: Partition) -> None:
    for offset in range(p.position, 100):
        await p.commit(offset + 1, metadata="m", expected=offset)
    await p.alive()
    await p.log_end(100)
    await p.done()
    if p.revoking.is_set() and p.revoking.deadline_ms is not None:
        await p.revoking.wait()
    await worker.commit({p: 1}, atomic=True, manifest=b"")


@worker.handler(topic="refunds", on_error="stop", max_attempts=3, drain="manual")
def refund(p: BlockingPartition) -> None:
    try:
        p.commit(p.position + 1)
    except PartitionRevoked:
        raise
    p.alive()
    p.revoking.wait(5.0)
    worker.commit({p: 1})


@worker.warm
async def warm(p: Partition) -> None: ...


@worker.drain
def drain(p: BlockingPartition) -> None: ...


leased = Worker(
    "a:1", "g", topics={"t": 1}, protocol="session", member_name="worker-1", max_failures=3,
    return_within_ms=60_000, capacity=2.0, wishes={"lease_ms": "fast", "mode": "warm"},
)  # fmt: skip


@leased.handler
async def handle_under_a_lease(p: Partition) -> None:
    if p.valid and p.token > 0:
        await p.commit(p.position + 1)


rows_worker = Worker("a:1", "g", source=open_source("/logs"), on_error="release", concurrency=4)


@rows_worker.rows(batch=500)
async def handle_rows(rows: list[dict[str, Any]]) -> None: ...


class Numbers(GroupReadable):
    topic = "numbers"

    def partitions(self) -> Sequence[int]:
        return [0]

    def begin_offset(self, partition: int) -> int:
        return 0

    def end_offset(self, partition: int) -> int:
        return 10

    def schema(self) -> Any: ...

    def with_schema(self, schema: Any) -> Numbers:
        return self

    def read(self, partition: int, begin: int, end: int) -> Iterable[Any]:
        return []


Worker("a:1", "g", source=Numbers())
Worker("a:1", "g", source="/logs")  # type: ignore[arg-type]

with BlockingMember("a:1", "g", {"numbers": 1}, log_ends=ends_of(Numbers())) as member:
    in_group(open_source("/logs"), member.group_address).end_offset(0)


async def topics() -> dict[str, int]:
    return {"invoices": 12}


async def functions_are_returned_as_they_are(p: Partition, b: BlockingPartition) -> None:
    await handle(p)
    refund(b)
    await handle_rows([])
    Worker("a:1", "g", topics=topics, start=lambda key: key.partition)
    Worker("a:1", "g", topics=lambda: {"invoices": 12}, start="latest", topics_refresh_ms=1_000)
    async with worker as same:
        same.stop(grace_ms=5)
    if worker.state.partitions:
        print(worker.state.phase, worker.state.counts["failures"])


async def a_forgotten_await_is_an_error(p: Partition) -> None:
    p.commit(5)  # type: ignore[unused-coroutine]
    p.alive()  # type: ignore[unused-coroutine]
    worker.commit({p: 5})  # type: ignore[unused-coroutine]


def wrong_handlers_are_errors() -> None:
    async def of_the_wrong_colour(p: BlockingPartition) -> None: ...
    def of_the_other_wrong_colour(p: Partition) -> None: ...
    async def of_two(p: Partition, q: int) -> None: ...
    def of_rows(rows: list[Any]) -> None: ...

    worker.handler(of_the_wrong_colour)  # type: ignore[type-var]
    worker.handler(of_the_other_wrong_colour)  # type: ignore[type-var]
    worker.handler(of_two)  # type: ignore[type-var]
    worker.handler(topic="t")(of_the_wrong_colour)  # type: ignore[type-var]
    rows_worker.rows(of_rows, batch="5")  # type: ignore[call-overload]


def wrong_settings_are_errors(p: Partition, b: BlockingPartition) -> None:
    Worker("a:1", "g", topics={"t": 1}, grace=5)  # type: ignore[call-arg]
    Worker("a:1", "g", topics={"t": "1"})  # type: ignore[dict-item]
    Worker("a:1", "g", topics={"t": 1}, on_error="ignore")  # type: ignore[arg-type]
    Worker("a:1", "g", topics={"t": 1}, protocol="sessions")  # type: ignore[arg-type]
    Worker("a:1", "g", protocol="session", capacity="2")  # type: ignore[arg-type]
    Worker("a:1", "g", protocol="session", wishes={"lease": 3})  # type: ignore[typeddict-unknown-key]
    worker.handler(on_error="ignore")  # type: ignore[call-overload]
    b.commit("5")  # type: ignore[arg-type]
    worker.commit({p: "5"})  # type: ignore[dict-item, unused-coroutine]
    worker.commit({p: 1, b: 2})  # type: ignore[dict-item, unused-coroutine]
