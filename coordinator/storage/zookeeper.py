"""The log in ZooKeeper: one node an entry, created in a transaction that checks the fence.

    /PREFIX/meta                 format version and number of shards
    /PREFIX/fence/SHARD          the epoch; the node's version is what is compared
    /PREFIX/entry/SHARD/N        the entry's frame; numbers have 20 digits
    /PREFIX/snapshot/SHARD       its last sequence number, the next offset, the number of chunks
    /PREFIX/chunk/SHARD/N-I      slices of the snapshot that goes up to N

An append is one transaction, which requires that the fence has our version, that the entry before
exists, and that this one does not. The last entry that a snapshot covers is kept when those before
it are trimmed.

ZooKeeper answers reads from the server that the client is connected to, which may lag. So a `sync`
comes first, after which that server is up to date.

Source: https://zookeeper.apache.org/doc/current/zookeeperProgrammers.html
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)

from coordinator.core.values.ids import ShardId
from coordinator.storage import entry as frames
from coordinator.storage.access import StoreAccess
from coordinator.storage.chain import Chain
from coordinator.storage.log import (
    Ambiguous,
    Damaged,
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
from coordinator.storage.zookeeper_client import ZooKeeperClient

FRAME_BYTES_MAX = 512 * 1024
"""ZooKeeper refuses requests above 1 MiB."""
SESSION_TIMEOUT_S = 6.0
RESOLVE_ATTEMPTS = 5
RESOLVE_PAUSE_S = 0.1
READ_AT_ONCE = 200
DELETE_AT_ONCE = 100
KINDS = ("fence", "entry", "snapshot", "chunk")

_NOT_DONE = (RolledBackError, RuntimeInconsistency)


class ZooKeeperLog:
    """`GroupLog` in a ZooKeeper ensemble.

    Use `ZooKeeperLog.open`.
    """

    def __init__(self, client: ZooKeeperClient, prefix: str) -> None:
        self._client = client
        self._prefix = "/" + prefix.strip("/")

    @classmethod
    async def open(cls, access: StoreAccess, *, prefix: str, shards: int | None) -> ZooKeeperLog:
        """Connect, and create the store if it does not exist.

        Args:
            shards: number of shards; None: the store is only read, and is not created.
        Raises:
            CannotOpen: no server answers, or a newer version made the store, or it was made
                for another number of shards, or it does not exist and is not to be created.
        """
        log = cls(ZooKeeperClient(access, SESSION_TIMEOUT_S), prefix)
        await log._client.start(lambda kazoo: log._find_or_make(kazoo, shards))
        return log

    async def fence(self, shard: ShardId, leader_epoch: int = 0) -> Fence:
        path = self._path("fence", shard)
        for attempt in range(1, RESOLVE_ATTEMPTS + 1):
            data, stat = await self._client.read(path)
            fence_epoch = next_fence_epoch(int(data or b"0"), leader_epoch)
            try:
                stat = await self._client.request(
                    "set", path, b"%d" % fence_epoch, version=stat.version
                )
            except BadVersionError:
                continue  # Another node was faster: take the epoch after its.
            except Ambiguous:
                # The next round takes the epoch after it: an epoch without owner does no harm.
                if attempt == RESOLVE_ATTEMPTS:
                    raise
                await asyncio.sleep(RESOLVE_PAUSE_S * attempt)
            else:
                return Fence(shard, fence_epoch, stat.version)
        raise LogUnavailable(f"ZooKeeper: others keep taking shard {shard} over")

    async def append(self, fence: Fence, entry: Entry) -> None:
        shard, sequence = fence.shard, entry.sequence
        frame = frames.encode(shard, entry)
        if len(frame) > FRAME_BYTES_MAX:
            raise TooLarge(f"an entry of {len(frame)} bytes")
        path = self._path("entry", shard, sequence)
        before = [self._path("entry", shard, sequence - 1)] if sequence > 1 else []

        def fill(transaction: Any) -> None:
            for other in before:
                transaction.check(other, -1)  # It exists, in any version.
            transaction.create(path, frame)

        failure = await self._until_known(fence, fill)
        if failure is None:
            return
        if isinstance(failure, NodeExistsError) and (await self._client.read(path))[0] == frame:
            return  # An earlier attempt has written it after all.
        raise Fenced(f"entry {sequence} does not follow what shard {shard} holds")

    async def load(self, fence: Fence, after: int = 0) -> Loaded:
        await self._check_fence(fence)
        loaded = await self._read(fence.shard, after)
        # The shard may have been taken over while it was read.
        await self._check_fence(fence)
        return loaded

    async def read(self, shard: ShardId, after: int = 0) -> Loaded:
        await self._client.read(
            self._path("fence", shard)
        )  # Syncs: what follows reads nothing older.
        try:
            return await self._read(shard, after)
        except NoNodeError as error:
            raise LogUnavailable(
                f"ZooKeeper: shard {shard} was trimmed while it was read"
            ) from error

    async def write_snapshot(self, fence: Fence, snapshot: ShardSnapshot) -> None:
        shard, sequence = fence.shard, snapshot.sequence
        path = self._path("snapshot", shard)
        data, stat = await self._client.read(path)
        if data and json.loads(data)["sequence"] >= sequence:
            await self._check_fence(fence)
            return
        parts = chunks(fence, snapshot)
        count = 0
        while frame := await asyncio.to_thread(next, parts, None):
            await self._write_chunk(fence, sequence, count, frame)
            count += 1
        row = {"sequence": sequence, "next_offset": snapshot.next_offset, "chunks": count}

        def seal(transaction: Any) -> None:
            transaction.set_data(path, json.dumps(row).encode(), version=stat.version)

        if await self._until_known(fence, seal) is not None:
            # An ambiguous attempt has sealed it, or another owner has.
            data, _ = await self._client.read(path)
            if json.loads(data) != row:
                raise Fenced(f"somebody else has written a snapshot of shard {shard}")
        await self._trim(fence, sequence)

    async def close(self) -> None:
        await self._client.close()

    # --- Inside ---

    def _path(self, kind: str, shard: ShardId, number: int | None = None) -> str:
        path = f"{self._prefix}/{kind}/{shard}"
        return path if number is None else f"{path}/{number:020}"

    def _find_or_make(self, client: KazooClient, shards: int | None) -> None:
        path = f"{self._prefix}/meta"
        if shards is not None:
            client.ensure_path(self._prefix)
            with contextlib.suppress(NodeExistsError):
                client.create(path, new_meta(shards))
        self.shards = shards_of(client.get(path)[0] if client.exists(path) else None, shards)
        if shards is not None:
            for kind in KINDS:
                for shard in range(shards):
                    client.ensure_path(self._path(kind, ShardId(shard)))

    async def _read_all(self, folder: str, names: Sequence[str]) -> list[tuple[str, bytes]]:
        contents = []
        for start in range(0, len(names), READ_AT_ONCE):
            some = names[start : start + READ_AT_ONCE]
            asked = (self._client.request("get", f"{folder}/{name}") for name in some)
            try:
                answers = await asyncio.gather(*asked)
            except Ambiguous as error:
                raise LogUnavailable(str(error)) from error
            contents += [(name, data) for name, (data, _) in zip(some, answers, strict=True)]
        return contents

    async def _until_known(
        self, fence: Fence, fill: Callable[[Any], None]
    ) -> KazooException | None:
        """Send a transaction that checks the fence, again while its fate is unknown.

        Returns:
            The reason why it was not carried out; None if it was.
        Raises:
            Fenced: the fence does not hold. Ambiguous: no attempt was answered.
        """
        for attempt in range(1, RESOLVE_ATTEMPTS + 1):
            transaction = self._client.kazoo.transaction()
            transaction.check(self._path("fence", fence.shard), fence.token)
            fill(transaction)
            try:
                fenced, *others = await self._client.commit(transaction)
            except Ambiguous:
                if attempt == RESOLVE_ATTEMPTS:
                    raise
                await asyncio.sleep(RESOLVE_PAUSE_S * attempt)
                continue
            except LogUnavailable as error:
                if attempt > 1:  # This attempt has written nothing; the one before may have.
                    raise Ambiguous(str(error)) from error
                raise
            if isinstance(fenced, BadVersionError | NoNodeError):
                raise Fenced(f"epoch {fence.fence_epoch} has been followed by another")
            reasons = [r for r in (fenced, *others) if isinstance(r, KazooException)]
            # The part that failed; the others were rolled back with it.
            return next((r for r in reasons if not isinstance(r, _NOT_DONE)), None)
        raise AssertionError  # The last attempt has raised.

    async def _check_fence(self, fence: Fence) -> None:
        data, stat = await self._client.read(self._path("fence", fence.shard))
        if stat.version != fence.token:
            raise Fenced(f"epoch {fence.fence_epoch} has been followed by {data.decode()}")

    async def _read(self, shard: ShardId, after: int) -> Loaded:
        folder = self._path("entry", shard)
        where = f"ZooKeeper, {self._prefix}: shard {shard}"
        chain = Chain(where, await self._load_snapshot(shard, after), after)
        names = sorted(await self._client.request("get_children", folder))
        # Entries that an interrupted trim has left are not read.
        names = [name for name in names if int(name) > chain.last]
        for sequence, frame in await self._read_all(folder, names):
            chain.add(frames.decode(frame, shard, int(sequence)))
        return chain.loaded()

    async def _load_snapshot(self, shard: ShardId, after: int) -> ShardSnapshot | None:
        """Read the snapshot; None if there is none that goes further than `after`."""
        data, _ = await self._client.read(self._path("snapshot", shard))
        row = json.loads(data) if data else {"sequence": 0}
        if row["sequence"] <= after:
            return None
        names = [f"{row['sequence']:020}-{number:06}" for number in range(row["chunks"])]
        try:
            contents = await self._read_all(self._path("chunk", shard), names)
        except NoNodeError as error:
            raise Damaged(
                f"ZooKeeper, {self._prefix}: shard {shard}: of the {row['chunks']} slices of "
                f"snapshot {row['sequence']} some are missing"
            ) from error
        parts = [frames.decode(frame, shard, row["sequence"]) for _, frame in contents]
        where = f"ZooKeeper, {self._prefix}: shard {shard}"
        return snapshot_of(where, row["sequence"], row["next_offset"], parts, row["chunks"])

    async def _write_chunk(self, fence: Fence, sequence: int, number: int, frame: bytes) -> None:
        path = f"{self._path('chunk', fence.shard)}/{sequence:020}-{number:06}"
        failure = await self._until_known(fence, lambda t: t.create(path, frame))
        if isinstance(failure, NodeExistsError):  # Left by an earlier attempt.
            failure = await self._until_known(fence, lambda t: t.set_data(path, frame))
        if failure is not None:
            raise LogUnavailable(f"ZooKeeper: {type(failure).__name__} of {path}")

    async def _trim(self, fence: Fence, sequence: int) -> None:
        """Delete the entries that the snapshot covers, and the slices of older snapshots."""
        for kind in ("entry", "chunk"):
            folder = self._path(kind, fence.shard)
            names = await self._client.request("get_children", folder)
            old = sorted(name for name in names if int(name.partition("-")[0]) < sequence)
            for start in range(0, len(old), DELETE_AT_ONCE):
                some = old[start : start + DELETE_AT_ONCE]
                await self._until_known(fence, _deletion(folder, some))


def _deletion(folder: str, names: Sequence[str]) -> Callable[[Any], None]:
    def fill(transaction: Any) -> None:
        for name in names:
            transaction.delete(f"{folder}/{name}")

    return fill
