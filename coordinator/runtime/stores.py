"""Opens the store that the settings name."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator.settings.sections import StorageConfig
from coordinator.storage import shares
from coordinator.storage.access import StoreAccess
from coordinator.storage.coordination import Coordination
from coordinator.storage.log import CannotOpen, GroupLog, LogError
from coordinator.storage.memory import MemoryLog
from coordinator.storage.sqlite import SqliteLog

if TYPE_CHECKING:
    from coordinator.settings.parsers import SharedStore
    from coordinator.storage.etcd import EtcdLog
    from coordinator.storage.postgres import PostgresLog
    from coordinator.storage.postgres_lineage import PostgresStore
    from coordinator.storage.postgres_reservations import Reservations
    from coordinator.storage.zookeeper import ZooKeeperLog

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Stores:
    """The log of groups, and the nodes' coordination; None: there is one node.

    announce: has clients that know the store find this node, by its address and the token that it
    asks of them. reservations: of the places of embedded nodes; None: a lock decides about the one.
    """

    log: GroupLog
    coordination: Coordination | None = None
    announce: Callable[[str, str], None] = lambda address, token: None
    reservations: Reservations | None = None


async def open_stores(
    config: StorageConfig,
    on_commit: Callable[[int, float], None] | None = None,
    on_failure: Callable[[str, str], None] = lambda what, reason: None,
) -> Stores:
    """Open the store that the settings name; the caller closes it.

    Args:
        on_commit: called in a thread after each commit of SQLite, with its number of appends and
            its duration in seconds. Shared stores do not call it.
        on_failure: called in a thread with an event and an account in words: SQLite's files are no
            longer those that were opened, or are again (`store_gone`, `store_back`); PostgreSQL has
            lost commits (`store_went_back`), or two hosts can be written (`two_primaries`).
    Raises:
        CannotOpen: the store is in use, was made by a newer version, or cannot be reached or
            written.
        Damaged: the store is not what was written.
    """
    shared = config.shared_store
    if shared is not None:
        timeout_s = config.store_session_timeout_ms / 1000
        access = _access(config, shared)
        if shared.kind == "etcd":
            from coordinator.storage.etcd_coordination import EtcdCoordination

            etcd = await _open_etcd(config, shared, config.shards)
            return Stores(etcd, EtcdCoordination(access, prefix=shared.name, timeout_s=timeout_s))
        if shared.kind == "postgresql":
            return await _open_postgres(config, shared, on_failure)
        zookeeper = await _open_zookeeper(config, shared, config.shards)
        from coordinator.storage.zookeeper_coordination import ZooKeeperCoordination

        agreed = ZooKeeperCoordination(access, prefix=shared.name, timeout_s=timeout_s)
        return Stores(zookeeper, agreed)
    if config.store == "memory":
        return Stores(MemoryLog())
    sqlite = await asyncio.to_thread(_open_sqlite, config, on_commit, on_failure)
    return Stores(sqlite, announce=sqlite.announce)


def _open_sqlite(
    config: StorageConfig,
    on_commit: Callable[[int, float], None] | None,
    on_failure: Callable[[str, str], None],
) -> SqliteLog:
    folder, share = Path(config.data_dir), config.fixed_share
    shares.check_share(folder, share)
    if not config.share:
        shares.check_folder(folder, nodes=1)
    log = SqliteLog(
        folder, shards=config.shards, share=share, on_commit=on_commit, on_failure=on_failure
    )
    if config.share:
        shares.note_complete(folder, share)
    return log


async def open_to_read(config: StorageConfig) -> tuple[GroupLog, int]:
    """Open the shared store that the settings name, if it exists.

    Returns:
        The log, and its number of shards.
    Raises:
        CannotOpen: it does not exist, was made by a newer version or cannot be reached.
    """
    shared = config.shared_store
    assert shared is not None
    if shared.kind == "postgresql":
        log: PostgresLog | EtcdLog | ZooKeeperLog = await _postgres_log(
            postgres_store(config, shared), None
        )
    elif shared.kind == "etcd":
        log = await _open_etcd(config, shared, None)
    else:
        log = await _open_zookeeper(config, shared, None)
    return log, log.shards


async def _open_etcd(config: StorageConfig, shared: SharedStore, shards: int | None) -> EtcdLog:
    from coordinator.storage.etcd import EtcdLog

    return await EtcdLog.open(
        _access(config, shared),
        prefix=shared.name,
        shards=shards,
        quota_bytes=config.store_quota_mib * MIB,
    )


async def _open_zookeeper(
    config: StorageConfig, shared: SharedStore, shards: int | None
) -> ZooKeeperLog:
    try:
        from coordinator.storage.zookeeper import ZooKeeperLog
    except ImportError as error:
        raise CannotOpen(
            "ZooKeeper needs the extra: consumer-group-coordinator[zookeeper]"
        ) from error
    return await ZooKeeperLog.open(_access(config, shared), prefix=shared.name, shards=shards)


async def _open_postgres(
    config: StorageConfig, shared: SharedStore, on_failure: Callable[[str, str], None]
) -> Stores:
    store = postgres_store(config, shared)
    from coordinator.storage.postgres_coordination import PostgresCoordination
    from coordinator.storage.postgres_reservations import Reservations

    reservations = Reservations(store)

    def renew_reservation() -> None:
        with contextlib.suppress(LogError):  # Then the next node that starts tells it.
            reservations.notify()

    def report(event: str, reason: str) -> None:
        on_failure(event, reason)
        if event == "store_went_back":
            threading.Thread(
                target=renew_reservation, name="store-reservation", daemon=True
            ).start()

    store.report = report
    log = await _postgres_log(store, config.shards)
    timeout_s = config.store_session_timeout_ms / 1000
    coordination = PostgresCoordination(store, timeout_s=timeout_s)
    return Stores(log, coordination, reservations=reservations)


@contextlib.contextmanager
def needs_psycopg() -> Iterator[None]:
    """Translate the error of imports inside. Raises `CannotOpen` without psycopg."""
    try:
        yield
    except ImportError as error:
        raise CannotOpen(
            "PostgreSQL needs the extra: consumer-group-coordinator[postgres]"
        ) from error


def postgres_store(config: StorageConfig, shared: SharedStore) -> PostgresStore:
    """The PostgreSQL store that the settings name; nothing is connected yet.

    Raises:
        CannotOpen: psycopg is missing, or libpq does not understand the URL.
    """
    with needs_psycopg():
        from coordinator.storage.postgres_connection import Database, Server
        from coordinator.storage.postgres_lineage import PostgresStore
    session_s = config.store_session_timeout_ms / 1000
    return PostgresStore(
        Server(Database.of(shared.url, shared.name, _access(config, shared), session_s))
    )


async def _postgres_log(store: PostgresStore, shards: int | None) -> PostgresLog:
    from coordinator.storage.postgres import PostgresLog

    return await PostgresLog.open(store, shards=shards)


def _access(config: StorageConfig, shared: SharedStore) -> StoreAccess:
    password = ""
    if config.store_password_file:
        try:
            password = Path(config.store_password_file).read_text().strip()
        except OSError as error:
            raise CannotOpen(f"store_password_file: {error}") from error
    return StoreAccess(
        shared.endpoints,
        ca_file=_file(config.store_ca_file),
        cert_file=_file(config.store_cert_file),
        key_file=_file(config.store_key_file),
        user=config.store_user,
        password=password,
    )


def _file(name: str) -> Path | None:
    return Path(name) if name else None
