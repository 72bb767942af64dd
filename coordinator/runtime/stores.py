"""The stores that the settings ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator.settings import Settings
from coordinator.storage import shares
from coordinator.storage.access import StoreAccess
from coordinator.storage.coordination import Coordination
from coordinator.storage.log import CannotOpen, GroupLog
from coordinator.storage.memory import MemoryLog
from coordinator.storage.sqlite import SqliteLog

if TYPE_CHECKING:
    from coordinator.storage.zookeeper import ZooKeeperLog

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Stores:
    """Where groups are durable, and where nodes agree; None: there is one node."""

    log: GroupLog
    coordination: Coordination | None = None


async def open_stores(
    settings: Settings, on_commit: Callable[[int, float], None] | None = None
) -> Stores:
    """Open what there is; whoever asked closes it.

    Args:
        on_commit: told of each write that SQLite has synced, from a thread: how many appends it
            carried, and how many seconds it took. In a shared store each append is its own.
    Raises:
        CannotOpen: it is in use, was made by a newer version, cannot be reached or written.
        Damaged: it is not what was written.
    """
    shared = settings.shared_store
    if shared is not None:
        if shared.kind == "etcd":
            return await _open_etcd(settings)
        return await _open_zookeeper(settings)
    if settings.store == "memory":
        return Stores(MemoryLog())
    return Stores(await asyncio.to_thread(_open_sqlite, settings, on_commit))


def _open_sqlite(settings: Settings, on_commit: Callable[[int, float], None] | None) -> SqliteLog:
    folder, share = Path(settings.data_dir), settings.fixed_share
    shares.check_share(folder, share)
    if not settings.share:
        shares.check_folder(folder, nodes=1)
    log = SqliteLog(folder, shards=settings.shards, share=share, on_commit=on_commit)
    if settings.share:
        shares.note_complete(folder, share)
    return log


async def open_to_read(settings: Settings) -> tuple[GroupLog, int]:
    """The shared store that the settings name, and its number of shards; it is not made.

    Raises:
        CannotOpen: it is not there, was made by a newer version or cannot be reached.
    """
    shared = settings.shared_store
    assert shared is not None
    if shared.kind == "etcd":
        from coordinator.storage.etcd import EtcdLog

        etcd = await EtcdLog.open(_access(settings), prefix=shared.name, shards=None)
        return etcd, etcd.shards
    zookeeper = await _open_zookeeper_log(settings, None)
    return zookeeper, zookeeper.shards


async def _open_etcd(settings: Settings) -> Stores:
    from coordinator.storage.etcd import EtcdLog
    from coordinator.storage.etcd_coordination import EtcdCoordination

    shared = settings.shared_store
    assert shared is not None
    access = _access(settings)
    log = await EtcdLog.open(
        access,
        prefix=shared.name,
        shards=settings.shards,
        quota_bytes=settings.store_quota_mib * MIB,
    )
    timeout_s = settings.store_session_timeout_ms / 1000
    return Stores(log, EtcdCoordination(access, prefix=shared.name, timeout_s=timeout_s))


async def _open_zookeeper(settings: Settings) -> Stores:
    log = await _open_zookeeper_log(settings, settings.shards)
    from coordinator.storage.zookeeper_coordination import ZooKeeperCoordination

    shared = settings.shared_store
    assert shared is not None
    timeout_s = settings.store_session_timeout_ms / 1000
    access = _access(settings)
    return Stores(log, ZooKeeperCoordination(access, prefix=shared.name, timeout_s=timeout_s))


async def _open_zookeeper_log(settings: Settings, shards: int | None) -> ZooKeeperLog:
    try:
        from coordinator.storage.zookeeper import ZooKeeperLog
    except ImportError as error:
        raise CannotOpen(
            "ZooKeeper needs kazoo: pip install 'consumer-group-coordinator[zookeeper]'"
        ) from error
    shared = settings.shared_store
    assert shared is not None
    return await ZooKeeperLog.open(_access(settings), prefix=shared.name, shards=shards)


def _access(settings: Settings) -> StoreAccess:
    """How to reach the shared store."""
    shared = settings.shared_store
    assert shared is not None
    password = ""
    if settings.store_password_file:
        try:
            password = Path(settings.store_password_file).read_text().strip()
        except OSError as error:
            raise CannotOpen(f"store_password_file: {error}") from error
    return StoreAccess(
        shared.endpoints,
        ca_file=_file(settings.store_ca_file),
        cert_file=_file(settings.store_cert_file),
        key_file=_file(settings.store_key_file),
        user=settings.store_user,
        password=password,
    )


def _file(name: str) -> Path | None:
    return Path(name) if name else None
