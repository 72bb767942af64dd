"""Two nodes on one store that know each other by certificate, or by token; and a Spark reader."""

from __future__ import annotations

import asyncio
import json

import pytest

pytest.importorskip("pyspark", reason="streams need the extra `spark`")

import pyarrow as pa

from coordinator.assignors import TopicPartition
from coordinator.cli.main import main
from coordinator.client import Credentials
from coordinator.operator.admin import GroupAdmin
from coordinator.sources import write_log
from coordinator.spark.options import StreamOptions
from coordinator.spark.stream import GroupStreamReader
from tests.campaigns.faults.stores import EtcdCluster, missing_etcd
from tests.integration.groups import commit_everywhere, eventually, members
from tests.kit.auth_files import AuthFiles, rule
from tests.kit.certificates import Authority
from tests.kit.serving import Process, free_port, running

GROUPS = 4
SETTINGS = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 300}


@pytest.fixture
def store():
    if reason := missing_etcd():
        pytest.skip(reason)
    with EtcdCluster() as running_store:
        yield f"etcd://{','.join(running_store.endpoints)}/test"


@pytest.fixture
def ca(tmp_path):
    return Authority(tmp_path / "tls")


def start(store: str, number: int, *flags: str) -> Process:
    return Process(
        "--store", store, "--node-id", str(number), "--shards", "4", "--acks", "all",
        "--listen", f"127.0.0.1:{free_port()}", "--metrics-listen", "",
        "--store-session-timeout-ms", "5000", "--group-initial-rebalance-delay-ms", "100", *flags,
    )  # fmt: skip


@pytest.mark.parametrize("proof", ["certificate", "token"])
async def test_nodes_follow_each_other_and_take_over(store, ca, tmp_path, proof, capsys):
    files = AuthFiles(
        tmp_path,
        rule("cert:node-*", "admin", "*"),
        rule("token:node", "admin", "*"),
        rule("token:worker", "join commit read", "group-*"),
        rule("token:op", "admin read", "*"),
    )
    worker, op, _ = files.token("worker"), files.token("op"), files.token("node")
    (tmp_path / "node-token").write_text(files.tokens["node"])
    common = files.flags
    common += ["--tls-peer-ca-file", ca.file]
    trusting = {"ca_file": ca.file}
    if proof == "certificate":
        common += ["--tls-client-ca-file", ca.file]
        trusting["cert_file"], trusting["key_file"] = ca.issue("anyone", common_name="anyone")
    else:
        common += ["--auth-peer-token-file", str(tmp_path / "node-token")]
    pairs = {n: ca.issue(f"node-{n}", common_name=f"node-{n}") for n in (1, 2)}
    options = {n: ("--tls-cert-file", c, "--tls-key-file", k) for n, (c, k) in pairs.items()}
    one = await asyncio.to_thread(start, store, 1, *common, *options[1])
    two = await asyncio.to_thread(start, store, 2, *common, *options[2])
    try:
        addresses = [one.address, two.address]
        flags = ["--bootstrap", ",".join(addresses), "--tls-ca", ca.file]
        if proof == "certificate":
            flags += ["--tls-cert", trusting["cert_file"], "--tls-key", trusting["key_file"]]
        (tmp_path / "op-token").write_text(op.token)
        flags += ["--token-file", str(tmp_path / "op-token")]

        def in_sync() -> bool:
            capsys.readouterr()
            assert main(["cluster", "describe", "--shards", "-o", "json", *flags]) == 0
            shards = json.loads(capsys.readouterr().out)
            return [sorted(shard["in_sync"]) for shard in shards] == [[1, 2]] * 4

        await eventually(in_sync)  # Each follows the shards of the other.
        shown = Credentials(**trusting, token=worker.token)
        async with members(addresses, GROUPS, credentials=shown, **SETTINGS) as some:
            before = [(m.member_id, m.generation) for m in some]
            await commit_everywhere(some, 1)
            # New certificates, which the nodes show each other without being started again.
            for number in (1, 2):
                ca.issue(f"node-{number}", common_name=f"node-{number}")
            await eventually(
                lambda: all(any("reloaded" in x["event"] for x in n.lines) for n in (one, two))
            )
            await commit_everywhere(some, 2)
            await eventually(in_sync)
            await asyncio.to_thread(one.kill)
            await commit_everywhere(some, 3)
            assert [(m.member_id, m.generation) for m in some] == before
        refused = [x for n in (one, two) for x in n.lines if x["event"] == "access_refused"]
        assert refused == []
    finally:
        for node in (one, two):
            with node:
                pass


async def test_a_node_that_may_not_follow_is_refused(store, ca, tmp_path):
    files = AuthFiles(tmp_path, rule("cert:node-1", "admin", "*"))
    common = [
        "--tls-client-ca-file",
        ca.file,
        "--auth-rules-file",
        files.settings["auth_rules_file"],
    ]
    nodes = []
    try:
        for number in (1, 2):
            cert, key = ca.issue(f"node-{number}", common_name=f"node-{number}")
            options = ("--tls-cert-file", cert, "--tls-key-file", key)
            nodes.append(await asyncio.to_thread(start, store, number, *common, *options))

        def refused() -> set[str]:
            lines = [x for node in nodes for x in node.lines if x["event"] == "access_refused"]
            return {x["principal"] for x in lines if x["where"].endswith("ShardReplica/Fetch")}

        await eventually(refused)
        assert refused() == {"cert:node-2"}
    finally:
        for node in nodes:
            with node:
                pass


async def test_the_options_of_a_query_reach_a_guarded_server(ca, tmp_path):
    files = AuthFiles(tmp_path, rule("token:query", "join commit read", "g"))
    files.token("query")
    (tmp_path / "token").write_text(files.tokens["query"])
    write_log(tmp_path / "log", 0, pa.table({"n": range(10)}))
    cert, key = ca.issue("node")
    settings = {"tls_cert_file": cert, "tls_key_file": key, **files.settings}
    async with running(**settings) as server:
        options = {
            "coordinator": server.address, "group": "g", "source": str(tmp_path / "log"),
            "topic": "t", "tlsCa": ca.file, "tokenFile": str(tmp_path / "token"),
        }  # fmt: skip
        parsed = StreamOptions.parse(options)
        reader = GroupStreamReader(parsed)

        def story() -> dict[TopicPartition, int]:
            first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
            reader.commit(first)
            reader.stop()
            with GroupAdmin(server.address, credentials=parsed.credentials) as admin:
                return admin.offsets("g")

        assert await asyncio.to_thread(story) == {TopicPartition("t", 0): 10}
        assert server.refused == []
