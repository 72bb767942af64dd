"""Programs that a virtual group starts: members and workers, on the loop and in threads."""

import asyncio

from coordinator.client import (
    BlockingMember,
    BlockingPartition,
    CoordinatorError,
    Member,
    Partition,
    Worker,
)

TOPICS = {"invoices": 4}


async def own(rows):
    """Poll, work and commit once a second, as a program with a `Member` does."""
    async with Member("anywhere:1", "billing", TOPICS) as member:
        while True:
            await member.poll(timeout=0.5)
            for partition in member.assignment:
                rows[partition] = rows.get(partition, 0) + 1
            await asyncio.sleep(0.5)
            try:
                await member.commit({p: rows[p] for p in member.assignment})
            except CoordinatorError:
                continue


def own_in_thread(rows):
    """The same with a `BlockingMember`."""
    with BlockingMember("anywhere:1", "billing", TOPICS) as member:
        while True:
            member.poll(timeout=1)
            for partition in member.assignment:
                rows[partition] = rows.get(partition, 0) + 1
            try:
                member.commit({p: rows[p] for p in member.assignment})
            except CoordinatorError:
                continue


def made(handler, **settings):
    """A worker with one handler; four partitions."""
    worker = Worker("anywhere:1", "billing", topics={"invoices": 4}, **settings)
    worker.handler(handler)
    return worker


async def once_a_second(p: Partition) -> None:
    for offset in range(p.position, 10**6):
        await asyncio.sleep(1)
        await p.commit(offset + 1)


def three_rows(p: BlockingPartition) -> None:
    """Commit three rows, then return; called again after a while."""
    for offset in range(p.position, p.position + 3):
        p.commit(offset + 1)
