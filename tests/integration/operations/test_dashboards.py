"""A real Prometheus beside busy nodes: every expression of the dashboards has data, every page of
metrics is sound, and every series is documented.

One node is alone, on SQLite, with TLS; two share an etcd, and each is the other's standby. In their
groups members come, go, die, commit, report ends of logs and are refused, and hand partitions over
in one of sessions, until the tests end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import ssl
import subprocess
import threading
import urllib.request
from pathlib import Path

import grpc
import pytest

from coordinator.assignors import TopicPartition
from coordinator.client import Credentials, Member, Revoking
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.group_pb2_grpc import GroupCoordinatorStub
from tests.campaigns.faults.stores import EtcdCluster, missing_etcd
from tests.integration.operations.prometheus import MISSING, Prometheus
from tests.kit import requests
from tests.kit.certificates import Authority
from tests.kit.patience import HANG_S
from tests.kit.serving import Process

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARDS = [DEPLOY / f"grafana/{name}.json" for name in ("fleet", "group", "internals")]
VARIABLES = {
    "$__rate_interval": "30s",
    "$datasource": "prometheus",
    "$group": "orders",
    "$instance": ".+",
    "$job": ".+",
}
"""Values that Grafana puts in place of variables, with All chosen."""

pytestmark = pytest.mark.skipif(
    bool(MISSING or missing_etcd()), reason=MISSING or missing_etcd() or "-"
)


class Busy:
    """The nodes, and Prometheus beside them."""

    def __init__(self, nodes: list[Process], prometheus: Prometheus) -> None:
        self.nodes = nodes
        self.prometheus = prometheus

    def pages(self) -> list[str]:
        """The page of metrics of each node."""
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        found = []
        for node in self.nodes:
            with urllib.request.urlopen(node.metrics, context=trusting) as page:
                found.append(page.read().decode())
        return found


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("busy")
    ca = Authority(folder / "ca")
    cert, key = ca.issue("node")
    common = ("--metrics-groups", "*", "--group-initial-rebalance-delay-ms", "20",
              "--group-min-session-timeout-ms", "100", "--shards", "4")  # fmt: skip
    alone = ("--data-dir", str(folder / "data"), "--tls-cert-file", cert, "--tls-key-file", key)
    with contextlib.ExitStack() as stack:
        etcd = stack.enter_context(EtcdCluster())
        store = f"etcd://{','.join(etcd.endpoints)}/busy"
        nodes = [
            stack.enter_context(Process(*common, *flags, wait=False))
            for flags in (alone, ("--store", store), ("--store", store))
        ]
        for node in nodes:
            node.wait_until_serving()
        stop = threading.Event()
        trusting = Credentials(ca_file=ca.file)
        works = [
            threading.Thread(target=asyncio.run, args=(work(address, credentials, stop),))
            for address, credentials in ((nodes[0].address, trusting), (nodes[1].address, None))
        ]
        prometheus = Prometheus(folder, [node.metrics for node in nodes])
        stack.enter_context(prometheus)
        for thread in works:
            thread.start()
        try:
            yield Busy(nodes, prometheus)
        finally:
            stop.set()
            for thread in works:
                thread.join(HANG_S)


async def work(address: str, credentials: Credentials | None, stop: threading.Event) -> None:
    """Keep a group busy."""
    opened = (credentials or Credentials()).open_aio(address)
    settings = {"credentials": credentials} if credentials is not None else {}
    ends = {"log_ends": lambda keys: dict.fromkeys(keys, 1_000), "log_ends_interval_s": 0.2}
    async with opened as channel:
        stub = GroupCoordinatorStub(channel)
        async with Member(address, "orders", {"t": 2}, **ends, **settings) as staying:
            await assigned(staying)
            offset = 0
            while not stop.is_set():
                offset += 1
                async with Member(address, "orders", {"t": 2}, **settings) as passing:
                    while not passing.assignment:
                        await asyncio.gather(staying.poll(timeout=0.1), passing.poll(timeout=0.1))
                await assigned(staying)
                await staying.commit({TopicPartition("t", 0): offset})
                await one_that_dies(stub)
                await beats_and_refusals(stub)
                await handed_over(address, settings)


async def assigned(member: Member) -> None:
    while len(member.assignment) < 2:
        await member.poll(timeout=0.1)


async def handed_over(address: str, settings: dict) -> None:
    """Have a partition of a session group handed over, and freed by a member that leaves."""
    wishes = {"plan_interval_ms": 0, "join_quiet_ms": 0, "initial_delay_ms": 0}
    settings = {**settings, "protocol": "session"}
    async with Member(address, "leased", {"t": 2}, wishes=wishes, **settings) as staying:
        await assigned(staying)
        async with Member(address, "leased", {"t": 2}, **settings) as passing:
            while not passing.assignment:
                for event in await staying.poll(timeout=0.1):
                    if isinstance(event, Revoking):
                        staying.released(event.holdings)
                await passing.poll(timeout=0.1)
        await assigned(staying)


async def one_that_dies(stub) -> None:
    """Join a group of its own and say no more."""
    request = requests.join(
        "mortal", session_timeout_ms=100, rebalance_timeout_ms=1_000, require_known_member_id=True
    )
    first = await stub.JoinGroup(request)
    request.member_id = first.member_id
    await stub.JoinGroup(request)


async def beats_and_refusals(stub) -> None:
    beat = pb.HeartbeatRequest(group_id="orders", member_id="nobody", generation_id=1)
    await asyncio.gather(*(stub.Heartbeat(beat) for _ in range(100)))
    with contextlib.suppress(grpc.aio.AioRpcError):
        await stub.FindCoordinator(pb.FindCoordinatorRequest(group_id="x" * 10_000))


def expressions() -> dict[str, str]:
    """Expressions as Grafana sends them, by dashboard, panel and legend."""
    found = {}
    for path in DASHBOARDS:
        content = json.loads(path.read_text())
        for panel in content["panels"]:
            for target in panel.get("targets", ()):
                found[f"{path.stem}: {panel['title']}: {target['legendFormat']}"] = target["expr"]
        for annotation in content["annotations"]["list"]:
            found[f"{path.stem}: {annotation['name']}"] = annotation["expr"]
        for variable in content["templating"]["list"]:
            if variable["type"] == "query":
                metric = re.fullmatch(r"label_values\((.*), \w+\)", variable["query"])[1]
                found[f"{path.stem}: ${variable['name']}"] = metric
    assert len(found) > 60
    return {place: filled(expression) for place, expression in found.items()}


def filled(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    return expression


def test_every_expression_of_the_dashboards_has_data(busy):
    missing = expressions()

    def has_all() -> bool:
        for place, expression in list(missing.items()):
            series = busy.prometheus.ask("query", query=expression)["result"]
            if any(line["value"][1] != "NaN" for line in series):
                del missing[place]
        return not missing

    try:
        busy.prometheus.wait_until(has_all)
    except AssertionError:
        pytest.fail(f"without data: {json.dumps(missing, indent=1)}")


def test_pages_of_busy_nodes_are_sound_and_have_labels_of_one_form(busy):
    free = {"method", "code", "group", "topic", "version", "implementation", "kind"}
    for page in busy.pages():
        done = subprocess.run(
            ["promtool", "check", "metrics"],
            input=page,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
        assert "_created" not in page
        labels = set(re.findall(r'[{,](\w+)="([^"]*)"', page))
        odd = {(name, value) for name, value in labels if not re.fullmatch(r"[\w.+-]*", value)}
        assert {name for name, _ in odd} <= free
        ours = {value for name, value in labels if name in ("cause", "state", "reason", "outcome")}
        assert {"session_expired", "preparing_rebalance", "completed"} <= ours
        assert all(re.fullmatch(r"[a-z_]+", value) for value in ours)


def test_every_series_is_documented_and_every_documented_one_is_there(busy):
    table, _, _ = (DEPLOY / "metrics.md").read_text().partition("\n## Metrics of workers\n")
    documented = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", table, re.MULTILINE))
    exposed = {}
    for page in busy.pages():
        exposed |= dict(re.findall(r"^# TYPE (\w+) (\w+)$", page, re.MULTILINE))
    known = {name: "gauge" if kind == "info" else kind for name, kind in documented.items()}
    assert exposed == known


def test_each_node_has_the_figures_of_its_own_process(busy):
    ticks = os.sysconf("SC_CLK_TCK")
    booted = int(re.search(r"^btime (\d+)", Path("/proc/stat").read_text(), re.MULTILINE)[1])
    for node, page in zip(busy.nodes, busy.pages(), strict=True):
        figures = dict(re.findall(r"^process_(\w+) (\S+)$", page, re.MULTILINE))
        fields = Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()
        started = booted + int(fields[19]) / ticks
        assert abs(float(figures["start_time_seconds"]) - started) < 0.001
        assert 0.5 < float(figures["resident_memory_bytes"]) / 2**20 / node.rss_mib() < 2
