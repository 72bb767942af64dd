"""The log in a real etcd: nodes that die, answers that are lost, a store that is full."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.request

import pytest
import trustme

from coordinator.core.ids import ShardId
from coordinator.storage import etcd as etcd_module
from coordinator.storage import etcd_client
from coordinator.storage.etcd import EtcdLog
from coordinator.storage.etcd_client import EtcdAccess
from coordinator.storage.log import (
    Ambiguous,
    CannotOpen,
    Damaged,
    Entry,
    Fenced,
    LogError,
    Snapshot,
    Unavailable,
)
from tests.faults.stores import EtcdCluster, missing_etcd
from tests.proxy import Proxy
from tests.storage.conftest import SHARDS, etcd_log

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(missing_etcd() is not None, reason=str(missing_etcd())),
]
S0 = ShardId(0)


@pytest.fixture
def own_etcd():
    """Three nodes that a test may kill."""
    with EtcdCluster() as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(etcd_client, "CALL_TIMEOUT_S", 1.0)


def entry(sequence: int, epoch: int = 1, size: int = 10) -> Entry:
    return Entry(sequence, epoch, sequence - 1, (b"%d" % sequence * size,))


async def test_it_is_all_there_for_the_next_owner(etcd):
    async with etcd_log(etcd, "next-owner") as log:
        old = await log.fence(S0)
        await log.append(old, entry(1))
        async with etcd_log(etcd, "next-owner") as other:
            new = await other.fence(S0)
            assert new.epoch == 2
            with pytest.raises(Fenced):
                await log.append(old, entry(2))
            assert [e.sequence for e in (await other.load(new)).entries] == [1]


async def test_a_store_of_another_size_or_a_newer_version_is_refused(etcd):
    access = EtcdAccess(etcd.endpoints)
    async with etcd_log(etcd, "sized"):
        with pytest.raises(CannotOpen, match=f"made for {SHARDS} shards"):
            await EtcdLog.open(access, prefix="sized", shards=SHARDS + 1)


async def test_no_endpoint_is_said():
    with pytest.raises(CannotOpen, match=r"127\.0\.0\.1:1"):
        await EtcdLog.open(EtcdAccess(("127.0.0.1:1",)), prefix="p", shards=1)


async def test_a_damaged_entry_stops_the_load(etcd):
    async with etcd_log(etcd, "damaged") as log:
        fence = await log.fence(S0)
        await log.append(fence, entry(1))
        await log._client.txn(
            etcd_module.pb.TxnRequest(
                success=[etcd_module._put(log._key("entry", S0, 1), b"x" * 100)]
            )
        )
        with pytest.raises(Damaged, match="shard 0, entry 1"):
            await log.load(fence)


async def test_appends_go_on_when_nodes_die_one_after_the_other(own_etcd):
    async with etcd_log(own_etcd) as log:
        fence = await log.fence(S0)
        for sequence in range(1, 61):
            if sequence % 20 == 5:
                own_etcd.kill(sequence // 20)
            if sequence % 20 == 15:
                own_etcd.start(sequence // 20)
                await asyncio.to_thread(own_etcd.wait)
            await persist(log, fence, entry(sequence))
        loaded = await log.load(fence)
        assert [e.sequence for e in loaded.entries] == list(range(1, 61))


async def persist(log, fence, one: Entry, doubts=(Ambiguous, Unavailable)) -> None:
    """As a shard does: the same entry again as long as its fate is open or it was refused."""
    async with asyncio.timeout(30):
        while True:
            try:
                await log.append(fence, one)
            except doubts:
                await asyncio.sleep(0.1)
            else:
                return


async def test_without_a_majority_nothing_is_acknowledged_and_nothing_lost(own_etcd):
    async with etcd_log(own_etcd) as log:
        fence = await log.fence(S0)
        await log.append(fence, entry(1))
        for number in (0, 1):
            own_etcd.signal(number, signal.SIGSTOP)
        with pytest.raises(LogError):
            await log.append(fence, entry(2))
        with pytest.raises(LogError):
            await log.load(fence)
        for number in (0, 1):
            own_etcd.signal(number, signal.SIGCONT)
        await persist(log, fence, entry(2))
        assert [e.sequence for e in (await log.load(fence)).entries] == [1, 2]


async def test_an_answer_that_is_lost_is_found_out(etcd):
    async with Proxy(etcd.endpoints[0]) as proxy:
        log = await EtcdLog.open(EtcdAccess((proxy.address,)), prefix="lost", shards=SHARDS)
        fence = await log.fence(S0)
        await log.append(fence, entry(1))
        proxy.answers_pass = False
        appending = asyncio.create_task(log.append(fence, entry(2)))
        async with etcd_log(etcd, "lost") as beside:
            async with asyncio.timeout(10):
                while (await beside.load(fence)).sequence < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        assert not appending.done()  # It is written, and the answer does not come.
        proxy.mend()
        await appending
        assert [e.sequence for e in (await log.load(fence)).entries] == [1, 2]
        await log.close()


async def fill(log, fence, size: int) -> None:
    for sequence in range(1, 200):
        await persist(log, fence, entry(sequence, size=size), doubts=(Ambiguous,))
        await log.keep_house()


async def test_a_store_that_fills_up_is_kept_for_snapshots(etcd, monkeypatch):
    monkeypatch.setattr(etcd_module, "KEPT_REVISIONS", 0)
    access = EtcdAccess(etcd.endpoints)
    log = await EtcdLog.open(access, prefix="full", shards=SHARDS)
    fence = await log.fence(S0)
    log._quota_bytes = 4 * log.size_bytes + 4_000_000
    with pytest.raises(Unavailable, match="more than 60% of its quota"):
        await fill(log, fence, size=50_000)
    last = (await log.load(fence)).sequence + 1
    await log.write_snapshot(fence, Snapshot(last - 1, last - 1, [b"sum"]))
    await log.keep_house()
    await asyncio.sleep(1.0)  # Compaction goes on behind the answer.
    await log.keep_house()
    await log.append(fence, Entry(last, 1, last - 1, (b"again",)))
    assert list((await log.load(fence)).records()) == [b"sum", b"again"]
    await log.close()


async def test_the_alarm_of_a_full_store_is_a_refusal_and_not_a_doubt():
    with EtcdCluster("--quota-backend-bytes", "8000000") as cluster:
        async with etcd_log(cluster) as log:
            fence = await log.fence(S0)
            with pytest.raises(Unavailable, match="database space exceeded"):
                await fill(log, fence, size=100_000)
            assert "NOSPACE" in await log._client.alarms()


async def test_a_login_is_made_and_made_again():
    with EtcdCluster() as cluster:
        for path, body in (
            ("user/add", {"name": "root", "password": "secret"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("auth/enable", {}),
        ):
            await asyncio.to_thread(post, cluster, path, body)
        with pytest.raises(CannotOpen, match="user name is empty"):
            await EtcdLog.open(EtcdAccess(cluster.endpoints), prefix="p", shards=SHARDS)
        access = EtcdAccess(cluster.endpoints, user="root", password="secret")
        log = await EtcdLog.open(access, prefix="p", shards=SHARDS)
        fence = await log.fence(S0)
        await log.append(fence, entry(1))
        log._client._token = "stale"
        await log.append(fence, entry(2))
        assert (await log.load(fence)).sequence == 2
        await log.close()
        wrong = EtcdAccess(cluster.endpoints, user="root", password="guess")
        with pytest.raises(CannotOpen, match="authentication failed"):
            await EtcdLog.open(wrong, prefix="p", shards=SHARDS)


def post(cluster: EtcdCluster, path: str, body: dict) -> None:
    """Over etcd's own JSON gateway: the coordinator administers nobody's users."""
    path = path if path.startswith("auth/") else f"auth/{path}"
    url = f"http://{cluster.endpoints[0]}/v3/{path}"
    request = urllib.request.Request(url, json.dumps(body).encode())
    urllib.request.urlopen(request, timeout=5).read()


async def test_over_tls_with_a_certificate_of_its_own(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    for name in ("server", "client"):
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        certificate.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        certificate.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
    flags = (
        "--cert-file", str(tmp_path / "server.pem"), "--key-file", str(tmp_path / "server.key"),
        "--trusted-ca-file", str(tmp_path / "ca.pem"), "--client-cert-auth",
    )  # fmt: skip
    with EtcdCluster(*flags, scheme="https") as cluster:
        access = EtcdAccess(
            cluster.endpoints,
            ca_file=tmp_path / "ca.pem",
            cert_file=tmp_path / "client.pem",
            key_file=tmp_path / "client.key",
        )
        log = await EtcdLog.open(access, prefix="p", shards=SHARDS)
        fence = await log.fence(S0)
        await log.append(fence, entry(1))
        assert (await log.load(fence)).sequence == 1
        await log.close()
        nameless = EtcdAccess(cluster.endpoints, ca_file=tmp_path / "ca.pem")
        with pytest.raises(CannotOpen):
            await EtcdLog.open(nameless, prefix="p", shards=SHARDS)
        lost = EtcdAccess(cluster.endpoints, ca_file=tmp_path / "nowhere.pem")
        with pytest.raises(CannotOpen, match=r"nowhere\.pem cannot be read"):
            await EtcdLog.open(lost, prefix="p", shards=SHARDS)
