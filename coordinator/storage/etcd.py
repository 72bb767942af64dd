"""The log in etcd: one key an entry, written in a transaction that compares the shard's fence.

    PREFIX/meta              format version and number of shards
    PREFIX/fence/SHARD       the epoch
    PREFIX/entry/SHARD/N     the entry's frame; numbers have 20 digits, so keys sort as they count
    PREFIX/snapshot/SHARD    its last sequence number, the next offset, the number of chunks
    PREFIX/chunk/SHARD/N/I   slices of the snapshot that goes up to N

An append is one transaction, which requires that the fence has our epoch, that the entry before
exists, and that this one does not. The last entry that a snapshot covers is kept when those before
it are trimmed, so there always is an entry before.

Source: etcd's KV API, https://etcd.io/docs/v3.5/learning/api/
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from itertools import count

from coordinator.core.values.ids import ShardId
from coordinator.storage import entry as frames
from coordinator.storage.access import StoreAccess
from coordinator.storage.chain import Chain
from coordinator.storage.etcd_api import rpc_pb2 as pb
from coordinator.storage.etcd_client import EtcdClient
from coordinator.storage.etcd_txn import delete, equal, exists, get, put, unchanged
from coordinator.storage.log import (
    Ambiguous,
    CannotOpen,
    Entry,
    Fence,
    Fenced,
    Loaded,
    LogUnavailable,
    ShardSnapshot,
    TooLarge,
    next_fence_epoch,
)
from coordinator.storage.meta import new_meta, shards_of
from coordinator.storage.slices import chunks, snapshot_of

FRAME_BYTES_MAX = 1024 * 1024
"""etcd refuses requests above 1.5 MiB."""
PAGE_ENTRIES = 500
RESOLVE_ATTEMPTS = 5
RESOLVE_PAUSE_S = 0.1
LOOK_EVERY_S = 10.0
"""Interval of housekeeping: reading the store's size, and compacting it."""
PRESSURE = 0.6
"""Fraction of the quota above which appends are refused. At the quota etcd refuses all writes, also
those that make room."""
KEPT_REVISIONS = 10_000
"""Newest revisions that are not compacted, so that a load can end, which reads as of one."""


class EtcdLog:
    """`GroupLog` in an etcd cluster.

    Use `EtcdLog.open`.
    """

    def __init__(self, client: EtcdClient, prefix: str, quota_bytes: int) -> None:
        self._client = client
        self._prefix = prefix
        self._quota_bytes = quota_bytes
        self._housekeeping: asyncio.Task[None] | None = None
        self.shards = 0
        self.size_bytes = 0
        """Bytes in use in the etcd cluster, other applications' keys included.

        etcd counts the pages that a compaction frees only at a later write. Renewals of nodes'
        sessions provide one, even while appends are refused.
        """

    @classmethod
    async def open(
        cls, access: StoreAccess, *, prefix: str, shards: int | None, quota_bytes: int = 2 * 1024**3
    ) -> EtcdLog:
        """Connect, and create the store if it does not exist.

        Args:
            shards: number of shards; None: the store is only read, and is not created.
            quota_bytes: the cluster's `--quota-backend-bytes`, which etcd does not report.
        Raises:
            CannotOpen: no endpoint answers, or a newer version made the store, or it was made
                for another number of shards, or it does not exist and is not to be created.
        """
        log = cls(EtcdClient(access), prefix, quota_bytes)
        try:
            log.shards = await log._find_or_make(shards)
            await log.keep_house()
        except (LogUnavailable, Ambiguous) as error:
            await log.close()
            raise CannotOpen(f"{','.join(access.endpoints)}: {error}") from error
        except CannotOpen:
            await log.close()
            raise
        log._housekeeping = asyncio.create_task(log._keep_house_for_ever())
        return log

    async def fence(self, shard: ShardId, leader_epoch: int = 0) -> Fence:
        key = self._key("fence", shard)
        for attempt in count(1):
            kvs = (await self._client.range(pb.RangeRequest(key=key))).kvs
            fence_epoch = next_fence_epoch(int(kvs[0].value) if kvs else 0, leader_epoch)
            request = pb.TxnRequest(
                compare=[unchanged(key, kvs[0].mod_revision if kvs else 0)],
                success=[put(key, b"%d" % fence_epoch)],
            )
            try:
                if (await self._client.txn(request)).succeeded:
                    return Fence(shard, fence_epoch)
            except Ambiguous:
                # The next round takes the epoch after it: an epoch without owner does no harm.
                if attempt == RESOLVE_ATTEMPTS:
                    raise
            await asyncio.sleep(RESOLVE_PAUSE_S * attempt)
        raise AssertionError  # The loop has no end.

    async def append(self, fence: Fence, entry: Entry) -> None:
        frame = frames.encode(fence.shard, entry)
        if len(frame) > FRAME_BYTES_MAX:
            raise TooLarge(f"an entry of {len(frame)} bytes")
        self._check_pressure()
        # An entry that an earlier attempt has written is found by `_judge`.
        response = await self._until_known(self._append_request(fence, entry.sequence, frame))
        if not response.succeeded:
            _judge(response, fence, entry.sequence, frame)

    async def load(self, fence: Fence, after: int = 0) -> Loaded:
        return await self._read(fence.shard, after, fence)

    async def read(self, shard: ShardId, after: int = 0) -> Loaded:
        return await self._read(shard, after, None)

    async def write_snapshot(self, fence: Fence, snapshot: ShardSnapshot) -> None:
        shard, sequence = fence.shard, snapshot.sequence
        key = self._key("snapshot", shard)
        kvs = (await self._client.range(pb.RangeRequest(key=key))).kvs
        if kvs and json.loads(kvs[0].value)["sequence"] >= sequence:
            await self._check_fence(fence)
            return
        parts = chunks(fence, snapshot)
        count = 0
        while frame := await asyncio.to_thread(next, parts, None):
            await self._fenced(fence, [], [put(self._key("chunk", shard, sequence, count), frame)])
            count += 1
        row = {"sequence": sequence, "next_offset": snapshot.next_offset, "chunks": count}
        await self._fenced(
            fence,
            [unchanged(key, kvs[0].mod_revision if kvs else 0)],
            [
                put(key, json.dumps(row).encode()),
                delete(self._key("entry", shard, 0), self._key("entry", shard, sequence)),
                delete(self._key("chunk", shard, 0), self._key("chunk", shard, sequence)),
            ],
        )

    async def close(self) -> None:
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        await self._client.close()

    async def keep_house(self) -> None:
        """Read the store's size, and compact revisions older than `KEPT_REVISIONS`.

        Raises:
            LogUnavailable: no endpoint answers.
        """
        status = await self._client.status()
        self.size_bytes = status.dbSizeInUse
        old = status.header.revision - KEPT_REVISIONS
        if old > 0:
            await self._client.compact(old)

    # --- Inside ---

    async def _until_known(self, request: pb.TxnRequest) -> pb.TxnResponse:
        """Send a transaction until its fate is known; a repetition tells what the first one did.

        Raises:
            Ambiguous: no attempt was answered. Unavailable, TooLarge: it was refused, and no
                earlier attempt was carried out either.
        """
        doubt: Ambiguous | None = None
        for attempt in range(1, RESOLVE_ATTEMPTS + 1):
            try:
                return await self._client.resolvable(request)
            except Ambiguous as error:
                doubt = error
            except (LogUnavailable, TooLarge) as error:
                raise doubt or error from error
            if attempt < RESOLVE_ATTEMPTS:
                await asyncio.sleep(RESOLVE_PAUSE_S * attempt)
        assert doubt is not None
        raise doubt

    async def _keep_house_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            with contextlib.suppress(LogUnavailable):  # Appends report it.
                await self.keep_house()

    def _check_pressure(self) -> None:
        """Refuse appends to a store that is nearly full; snapshots, which free space, go on."""
        if self.size_bytes > PRESSURE * self._quota_bytes:
            raise LogUnavailable(
                f"etcd holds {self.size_bytes:,} bytes, more than {PRESSURE:.0%} of its quota of "
                f"{self._quota_bytes:,}",
                is_lasting=True,
            )

    def _key(self, kind: str, shard: ShardId, *numbers: int) -> bytes:
        parts = [self._prefix, kind, str(shard), *(f"{number:020}" for number in numbers)]
        return "/".join(parts).encode()

    def _append_request(self, fence: Fence, sequence: int, frame: bytes) -> pb.TxnRequest:
        key = self._key("entry", fence.shard, sequence)
        compare = [self._holds(fence), unchanged(key, 0)]
        if sequence > 1:
            compare.append(exists(self._key("entry", fence.shard, sequence - 1)))
        return pb.TxnRequest(
            compare=compare,
            success=[put(key, frame)],
            failure=[get(self._key("fence", fence.shard)), get(key)],
        )

    def _holds(self, fence: Fence) -> pb.Compare:
        return equal(self._key("fence", fence.shard), b"%d" % fence.fence_epoch)

    async def _fenced(
        self, fence: Fence, more: list[pb.Compare], operations: list[pb.RequestOp]
    ) -> None:
        """Carry operations out if the fence and all of `more` hold; else raise `Fenced`."""
        request = pb.TxnRequest(compare=[self._holds(fence), *more], success=operations)
        if not (await self._client.txn(request)).succeeded:
            await self._check_fence(fence)
            raise Fenced(f"somebody else has written a snapshot of shard {fence.shard}")

    async def _check_fence(self, fence: Fence) -> None:
        key = self._key("fence", fence.shard)
        kvs = (await self._client.range(pb.RangeRequest(key=key))).kvs
        _check_epoch([kv.value for kv in kvs], fence)

    async def _read(self, shard: ShardId, after: int, fence: Fence | None) -> Loaded:
        """Read as of one revision, at which the fence held; mostly in one answer."""
        first = await self._client.repeatable(
            pb.TxnRequest(
                compare=[] if fence is None else [self._holds(fence)],
                success=[
                    get(self._key("snapshot", shard)),
                    pb.RequestOp(request_range=self._page("entry", shard, (), after + 1)),
                ],
                failure=[get(self._key("fence", shard))],
            )
        )
        kvs = first.responses[0].response_range.kvs
        if fence is not None and not first.succeeded:
            _check_epoch([kv.value for kv in kvs], fence)
        revision, page = first.header.revision, first.responses[1].response_range
        snapshot = None
        if kvs and json.loads(kvs[0].value)["sequence"] > after:
            snapshot = await self._load_snapshot(shard, kvs[0].value, revision)
        chain = Chain(f"etcd, {self._prefix}: shard {shard}", snapshot, after)
        async for sequence, frame in self._numbered("entry", shard, (), page, revision):
            if sequence > chain.last:
                chain.add(frames.decode(frame, shard, sequence))
        return chain.loaded()

    async def _load_snapshot(self, shard: ShardId, value: bytes, revision: int) -> ShardSnapshot:
        row = json.loads(value)
        within = (row["sequence"],)
        page = await self._client.range(self._page("chunk", shard, within, 0, revision))
        parts = [
            frames.decode(frame, shard, row["sequence"])
            async for number, frame in self._numbered("chunk", shard, within, page, revision)
            if number < row["chunks"]  # Another attempt of the same snapshot may have left more.
        ]
        where = f"etcd, {self._prefix}: shard {shard}"
        return snapshot_of(where, row["sequence"], row["next_offset"], parts, row["chunks"])

    def _page(
        self, kind: str, shard: ShardId, within: tuple[int, ...], first: int, revision: int = 0
    ) -> pb.RangeRequest:
        """Request for keys from a number on, as of a revision; 0: the newest."""
        return pb.RangeRequest(
            key=self._key(kind, shard, *within, first),
            range_end=self._key(kind, shard, *within) + b"0",  # Sorts after every key with a slash.
            limit=PAGE_ENTRIES,
            revision=revision,
        )

    async def _numbered(
        self,
        kind: str,
        shard: ShardId,
        within: tuple[int, ...],
        page: pb.RangeResponse,
        revision: int,
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Yield number and frame of the keys of a page, and of the pages after it."""
        while True:
            number = -1
            for kv in page.kvs:
                number = int(kv.key.rpartition(b"/")[2])
                yield number, kv.value
            if not page.more:
                return
            page = await self._client.range(self._page(kind, shard, within, number + 1, revision))

    async def _find_or_make(self, shards: int | None) -> int:
        key = f"{self._prefix}/meta".encode()
        made = [] if shards is None else [put(key, new_meta(shards))]
        response = await self._until_known(
            pb.TxnRequest(compare=[unchanged(key, 0)], success=made, failure=[get(key)])
        )
        if response.succeeded:
            return shards_of(None if shards is None else new_meta(shards), shards)
        return shards_of(response.responses[0].response_range.kvs[0].value, shards)


def _judge(response: pb.TxnResponse, fence: Fence, sequence: int, frame: bytes) -> None:
    """Raise the reason why an append was not carried out; return if the entry exists already."""
    epochs, stored = (
        [kv.value for kv in operation.response_range.kvs] for operation in response.responses
    )
    _check_epoch(epochs, fence)
    if stored != [frame]:
        raise Fenced(f"entry {sequence} does not follow what shard {fence.shard} holds")


def _check_epoch(values: list[bytes], fence: Fence) -> None:
    fence.check(int(values[0]) if values else 0)
