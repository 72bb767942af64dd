"""Every log the project has, opened fresh for each test of the one conformance suite."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path

import pytest

from coordinator.storage.access import StoreAccess
from coordinator.storage.etcd import EtcdLog
from coordinator.storage.memory import MemoryLog
from coordinator.storage.postgres import PostgresLog
from coordinator.storage.sqlite import SqliteLog
from coordinator.storage.zookeeper import ZooKeeperLog
from tests.campaigns.faults.stores import (
    EtcdCluster,
    Postgres,
    ZooKeeperCluster,
    missing_etcd,
    missing_postgres,
    missing_zookeeper,
)
from tests.unit.storage.meetings import (
    EtcdMeeting,
    MemoryMeeting,
    PostgresMeeting,
    ZooKeeperMeeting,
    postgres_store,
)

SHARDS = 4


@pytest.fixture(scope="session")
def etcd():
    """Three nodes for all tests of the session, which keep their leader on a busy machine."""
    if reason := missing_etcd():
        pytest.skip(reason)
    with EtcdCluster("--heartbeat-interval", "200", "--election-timeout", "2000") as cluster:
        yield cluster


@contextlib.asynccontextmanager
async def etcd_log(cluster: EtcdCluster, prefix: str = ""):
    access = StoreAccess(cluster.endpoints)
    log = await EtcdLog.open(access, prefix=prefix or uuid.uuid4().hex, shards=SHARDS)
    try:
        yield log
    finally:
        await log.close()


@pytest.fixture(scope="session")
def zookeeper():
    """Three servers for all tests of the session."""
    if reason := missing_zookeeper():
        pytest.skip(reason)
    with ZooKeeperCluster() as cluster:
        yield cluster


@contextlib.asynccontextmanager
async def zookeeper_log(cluster: ZooKeeperCluster, prefix: str = ""):
    access = StoreAccess(cluster.endpoints)
    log = await ZooKeeperLog.open(access, prefix=prefix or uuid.uuid4().hex, shards=SHARDS)
    try:
        yield log
    finally:
        await log.close()


@contextlib.asynccontextmanager
async def memory_log():
    yield MemoryLog()


@pytest.fixture(scope="session")
def postgres():
    """One server for all tests of the session."""
    if reason := missing_postgres():
        pytest.skip(reason)
    with Postgres() as server:
        yield server


@contextlib.asynccontextmanager
async def postgres_log(server: Postgres, cluster: str = ""):
    store = postgres_store(server.url("primary", cluster=""), cluster or f"c{uuid.uuid4().hex}")
    log = await PostgresLog.open(store, shards=SHARDS)
    try:
        yield log
    finally:
        await log.close()


SLOW = [
    pytest.param(name, marks=pytest.mark.integration) for name in ("etcd", "zookeeper", "postgres")
]


@pytest.fixture(params=["memory", *SLOW])
async def meeting(request):
    """Makes as many `Coordination`s of one cluster as are asked for."""
    if request.param == "memory":
        meeting = MemoryMeeting()
    elif request.param == "postgres":
        url = request.getfixturevalue("postgres").url("primary", cluster="")
        meeting = PostgresMeeting(url)
        await meeting.open()
    else:
        kind = {"etcd": EtcdMeeting, "zookeeper": ZooKeeperMeeting}[request.param]
        meeting = kind(request.getfixturevalue(request.param).endpoints)
    yield meeting
    await meeting.close()


@pytest.fixture(params=["memory", "sqlite", *SLOW])
async def log(request, tmp_path):
    match request.param:
        case "etcd":
            opening = etcd_log(request.getfixturevalue("etcd"))
        case "zookeeper":
            opening = zookeeper_log(request.getfixturevalue("zookeeper"))
        case "postgres":
            opening = postgres_log(request.getfixturevalue("postgres"))
        case "sqlite":
            opening = opened(tmp_path)
        case _:
            opening = memory_log()
    async with opening as opened_log:
        yield opened_log


@contextlib.asynccontextmanager
async def opened(folder: Path, **more):
    log = SqliteLog(folder, shards=SHARDS, **more)
    try:
        yield log
    finally:
        await log.close()
