"""Conformance of every log. A log laxer than the others would allow two owners of a shard."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.core.values.ids import ShardId
from coordinator.storage.log import Entry, Fenced, ShardSnapshot

S0, S1 = ShardId(0), ShardId(1)


def entry(sequence: int, *records: bytes, epoch: int = 1, base_offset: int | None = None) -> Entry:
    """An entry of one record, unless others are given; so offset is sequence - 1."""
    base = sequence - 1 if base_offset is None else base_offset
    return Entry(sequence, epoch, base, records or (b"r%d" % sequence,))


async def write(log, fence, *sequences: int) -> None:
    for sequence in sequences:
        await log.append(fence, entry(sequence, epoch=fence.fence_epoch))


async def test_a_new_shard_is_empty(log):
    loaded = await log.load(await log.fence(S0))
    assert (loaded.snapshot, loaded.entries) == (None, [])
    assert (loaded.sequence, loaded.next_offset) == (0, 0)
    assert list(loaded.records()) == []


async def test_what_was_appended_is_loaded_in_order(log):
    fence = await log.fence(S0)
    first = entry(1, b"a", b"", b"\0\xff" * 1000)
    second = entry(2, b"d", base_offset=3)
    await log.append(fence, first)
    await log.append(fence, second)
    loaded = await log.load(fence)
    assert loaded.entries == [first, second]
    assert (loaded.sequence, loaded.next_offset) == (2, 4)
    assert list(loaded.records()) == [*first.records, *second.records]


async def test_shards_know_nothing_of_each_other(log):
    zero, one = await log.fence(S0), await log.fence(S1)
    await write(log, zero, 1, 2)
    await write(log, one, 1)
    assert (await log.load(zero)).sequence == 2
    assert (await log.load(one)).sequence == 1
    await log.fence(S0)
    await write(log, one, 2)


async def test_epochs_grow(log):
    assert [(await log.fence(S0)).fence_epoch for _ in range(3)] == [1, 2, 3]
    assert (await log.fence(S1)).fence_epoch == 1


async def test_a_later_leader_epoch_is_above_all_of_an_earlier_one(log):
    first = await log.fence(S0, leader_epoch=1)
    again = await log.fence(S0, leader_epoch=1)
    later = await log.fence(S0, leader_epoch=7)
    assert first.fence_epoch < again.fence_epoch < later.fence_epoch
    for leader_epoch in (0, 1, 6):
        with pytest.raises(Fenced, match=f"leader epoch {leader_epoch} has been followed by 7"):
            await log.fence(S0, leader_epoch=leader_epoch)
    await write(log, later, 1)
    with pytest.raises(Fenced):
        await log.append(again, entry(2, epoch=again.fence_epoch))
    assert (await log.fence(S0, leader_epoch=7)).fence_epoch == later.fence_epoch + 1


async def test_an_old_owner_can_neither_write_nor_read(log):
    old = await log.fence(S0)
    await write(log, old, 1)
    new = await log.fence(S0)
    for attempt in (
        log.append(old, entry(2)),
        log.append(old, entry(1)),  # Even what is there already is no longer the old one's to say.
        log.load(old),
        log.write_snapshot(old, ShardSnapshot(1, 1, [b"s"])),
    ):
        with pytest.raises(Fenced):
            await attempt
    await write(log, new, 2)
    assert [e.fence_epoch for e in (await log.load(new)).entries] == [1, 2]


async def test_the_same_entry_twice_is_written_once(log):
    fence = await log.fence(S0)
    await write(log, fence, 1, 2)
    for sequence in (1, 2):
        await log.append(fence, entry(sequence))
    assert [e.sequence for e in (await log.load(fence)).entries] == [1, 2]


@pytest.mark.parametrize("sequence", [1, 2, 4, 9])
async def test_a_sequence_number_is_claimed_once_and_in_order(log, sequence):
    fence = await log.fence(S0)
    await write(log, fence, 1, 2)
    with pytest.raises(Fenced):
        await log.append(fence, entry(sequence, b"other"))
    assert [e.records for e in (await log.load(fence)).entries] == [(b"r1",), (b"r2",)]


async def test_of_appends_at_once_only_the_stale_are_refused(log):
    old = await log.fence(S0)
    new, other = await log.fence(S0), await log.fence(S1)
    results = await asyncio.gather(
        log.append(old, entry(1, b"old", epoch=1)),
        log.append(new, entry(1, epoch=2)),
        log.append(new, entry(3, epoch=2)),
        log.append(other, entry(1)),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [Fenced, type(None), Fenced, type(None)]
    assert list((await log.load(new)).records()) == [b"r1"]
    assert list((await log.load(other)).records()) == [b"r1"]


async def test_a_snapshot_takes_the_place_of_what_it_covers(log):
    fence = await log.fence(S0)
    await write(log, fence, 1, 2, 3)
    await log.write_snapshot(fence, ShardSnapshot(2, 2, [b"sum"]))
    loaded = await log.load(fence)
    assert (loaded.snapshot.sequence, loaded.snapshot.next_offset) == (2, 2)
    assert list(loaded.records()) == [b"sum", b"r3"]
    assert (loaded.sequence, loaded.next_offset) == (3, 3)
    await write(log, fence, 4)
    await log.write_snapshot(fence, ShardSnapshot(4, 4, [b"more", b"than one"]))
    loaded = await log.load(fence)
    assert list(loaded.records()) == [b"more", b"than one"]
    assert (loaded.sequence, loaded.next_offset) == (4, 4)
    await write(log, fence, 5)


async def test_an_empty_snapshot_is_one(log):
    fence = await log.fence(S0)
    await write(log, fence, 1, 2)
    await log.write_snapshot(fence, ShardSnapshot(2, 2, []))
    loaded = await log.load(fence)
    assert (list(loaded.records()), loaded.sequence) == ([], 2)


async def test_a_large_snapshot_comes_back_whole(log):
    fence = await log.fence(S0)
    await write(log, fence, 1)
    records = [bytes([n % 251]) * 5_000 for n in range(300)]
    await log.write_snapshot(fence, ShardSnapshot(1, 1, iter(records)))
    assert list((await log.load(fence)).records()) == records


async def test_an_older_snapshot_does_not_replace_a_newer_one(log):
    fence = await log.fence(S0)
    await write(log, fence, 1, 2)
    await log.write_snapshot(fence, ShardSnapshot(2, 2, [b"new"]))
    await log.write_snapshot(fence, ShardSnapshot(1, 1, [b"old"]))
    assert list((await log.load(fence)).records()) == [b"new"]


async def test_appends_go_on_beside_a_snapshot(log):
    fence = await log.fence(S0)
    await write(log, fence, 1)

    async def appends():
        for sequence in range(2, 60):
            await write(log, fence, sequence)

    records = [b"x" * 100_000 for _ in range(20)]
    await asyncio.gather(appends(), log.write_snapshot(fence, ShardSnapshot(1, 1, iter(records))))
    loaded = await log.load(fence)
    assert list(loaded.records()) == records + [b"r%d" % n for n in range(2, 60)]


async def test_many_writers_are_all_served(log):
    fences = [await log.fence(ShardId(n)) for n in range(4)]
    await asyncio.gather(*(write(log, fence, *range(1, 50)) for fence in fences))
    for fence in fences:
        assert [e.sequence for e in (await log.load(fence)).entries] == list(range(1, 50))


async def test_a_reader_gets_what_it_does_not_have_yet(log):
    fence = await log.fence(S0)
    await write(log, fence, 1, 2, 3)
    for loaded in (await log.load(fence, 2), await log.read(S0, 2)):
        assert (loaded.snapshot, loaded.entries) == (None, [entry(3)])
    for loaded in (await log.load(fence, 3), await log.read(S0, 3)):
        assert (loaded.snapshot, loaded.entries) == (None, [])
    await log.write_snapshot(fence, ShardSnapshot(2, 2, [b"sum"]))
    for loaded in (await log.load(fence, 2), await log.read(S0, 2)):
        assert (loaded.snapshot, loaded.entries) == (None, [entry(3)])
    for loaded in (await log.load(fence, 1), await log.read(S0, 1)):
        assert list(loaded.records()) == [b"sum", b"r3"], "what it lacks is in the snapshot alone"


async def test_whoever_reads_needs_no_fence(log):
    await write(log, await log.fence(S0), 1)
    await log.fence(S0)
    assert (await log.read(S0)).entries == [entry(1)]
    assert (await log.read(S1)).entries == []
