"""Features of etcd alone: a quota, an alarm, a login by token, certificates of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.request

import pytest
import trustme

from coordinator.core.values.ids import ShardId
from coordinator.storage import etcd as etcd_module
from coordinator.storage.access import StoreAccess
from coordinator.storage.coordination import NodeInfo
from coordinator.storage.etcd import EtcdLog
from coordinator.storage.etcd_api import rpc_pb2 as pb
from coordinator.storage.etcd_client import EtcdClient
from coordinator.storage.etcd_coordination import EtcdCoordination
from coordinator.storage.log import (
    Ambiguous,
    CannotOpen,
    Entry,
    LogUnavailable,
    ShardSnapshot,
)
from tests.campaigns.faults.stores import EtcdCluster, missing_etcd
from tests.kit.patience import HANG_S
from tests.unit.storage.conftest import SHARDS, etcd_log

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(missing_etcd() is not None, reason=str(missing_etcd())),
]
S0 = ShardId(0)


def entry(sequence: int, epoch: int = 1, size: int = 10) -> Entry:
    return Entry(sequence, epoch, sequence - 1, (b"%d" % sequence * size,))


async def fill(log, fence, size: int) -> None:
    """Append until it is refused; a slow disk may leave an append in doubt."""
    for sequence in range(1, 200):
        while True:
            with contextlib.suppress(Ambiguous):
                await log.append(fence, entry(sequence, size=size))
                break
        await log.keep_house()


async def test_a_store_that_fills_up_is_kept_for_snapshots(etcd, monkeypatch):
    monkeypatch.setattr(etcd_module, "KEPT_REVISIONS", 0)
    access = StoreAccess(etcd.endpoints)
    log = await EtcdLog.open(access, prefix="full", shards=SHARDS)
    fence = await log.fence(S0)
    log._quota_bytes = 4 * log.size_bytes + 4_000_000
    with pytest.raises(LogUnavailable, match="more than 60% of its quota"):
        await fill(log, fence, size=50_000)
    last = (await log.load(fence)).sequence + 1
    await log.write_snapshot(fence, ShardSnapshot(last - 1, last - 1, [b"sum"]))
    # etcd compacts after its answer, and counts the pages that this frees at a later write. While
    # appends are refused, the renewals of nodes' sessions are those writes.
    coordination = EtcdCoordination(access, prefix="full")
    session = await coordination.join(NodeInfo(1, "127.0.0.1", 1, "incarnation"))
    again = Entry(last, 1, last - 1, (b"again",))
    async with asyncio.timeout(HANG_S):
        while True:
            await log.keep_house()
            with contextlib.suppress(LogUnavailable, Ambiguous):
                await log.append(fence, again)
                break
            await asyncio.sleep(0.05)
    assert list((await log.load(fence)).records()) == [b"sum", b"again"]
    await coordination.leave(session)
    await coordination.close()
    await log.close()


async def test_the_alarm_of_a_full_store_is_a_refusal_and_not_a_doubt():
    with EtcdCluster("--quota-backend-bytes", "8000000") as cluster:
        async with etcd_log(cluster) as log:
            fence = await log.fence(S0)
            with pytest.raises(LogUnavailable, match="database space exceeded"):
                await fill(log, fence, size=100_000)
            alarms = await log._client._repeat("Maintenance", "Alarm", pb.AlarmRequest())
            assert pb.AlarmType.NOSPACE in [alarm.alarm for alarm in alarms.alarms]


async def test_a_login_is_made_and_made_again():
    with EtcdCluster() as cluster:
        for path, body in (
            ("user/add", {"name": "root", "password": "secret"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("auth/enable", {}),
        ):
            await asyncio.to_thread(post, cluster, path, body)
        with pytest.raises(CannotOpen, match="user name is empty"):
            await EtcdLog.open(StoreAccess(cluster.endpoints), prefix="p", shards=SHARDS)
        access = StoreAccess(cluster.endpoints, user="root", password="secret")
        log = await EtcdLog.open(access, prefix="p", shards=SHARDS)
        fence = await log.fence(S0)
        await log.append(fence, entry(1))
        log._client._token = "stale"
        await log.append(fence, entry(2))
        assert (await log.load(fence)).sequence == 2
        await log.close()
        wrong = StoreAccess(cluster.endpoints, user="root", password="guess")
        with pytest.raises(CannotOpen, match="authentication failed"):
            await EtcdLog.open(wrong, prefix="p", shards=SHARDS)


def post(cluster: EtcdCluster, path: str, body: dict) -> None:
    """Over etcd's own JSON gateway: the coordinator administers nobody's users."""
    path = path if path.startswith("auth/") else f"auth/{path}"
    url = f"http://{cluster.endpoints[0]}/v3/{path}"
    request = urllib.request.Request(url, json.dumps(body).encode())
    urllib.request.urlopen(request, timeout=HANG_S).read()


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
        access = StoreAccess(
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
        nameless = StoreAccess(cluster.endpoints, ca_file=tmp_path / "ca.pem")
        with pytest.raises(CannotOpen):
            await EtcdLog.open(nameless, prefix="p", shards=SHARDS)
        lost = StoreAccess(cluster.endpoints, ca_file=tmp_path / "nowhere.pem")
        with pytest.raises(CannotOpen, match=r"nowhere\.pem cannot be read"):
            await EtcdLog.open(lost, prefix="p", shards=SHARDS)


async def test_a_minority_tells_nobody_what_it_believes():
    """A read that is not linearizable would be answered from what the one server remembers."""
    with EtcdCluster() as cluster:
        log = await EtcdLog.open(StoreAccess(cluster.endpoints), prefix="p", shards=SHARDS)
        fence = await log.fence(S0)
        await log.append(fence, entry(1))
        await log.close()
        minority = EtcdClient(StoreAccess(cluster.endpoints[:1]))
        left = EtcdLog(minority, "p", 2**31)
        meeting = EtcdCoordination(StoreAccess(cluster.endpoints[:1]), prefix="p")
        assert [e.sequence for e in (await left.read(S0)).entries] == [1]
        await meeting.read()
        for number in (1, 2):
            cluster.kill(number)
        for ask in (left.read(S0), left.load(fence), meeting.read()):
            with pytest.raises((LogUnavailable, Ambiguous)):
                await ask
        await left.close()
        await meeting.close()
