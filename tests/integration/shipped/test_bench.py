"""The benchmarks do what they say, in small: the figures themselves mean nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.member_costs import FLAGS, PROTOCOLS, WORK, MemberCosts
from tests.campaigns.faults.stores import EtcdCluster, missing_etcd
from tests.kit.patience import SLOW_TEST_S
from tests.kit.serving import Process

ROOT = Path(__file__).parents[3]
needs_h2load = pytest.mark.skipif(
    shutil.which("h2load") is None,
    reason="no h2load found (on Debian: apt-get install nghttp2-client)",
)


def bench(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "tests.bench", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
        timeout=SLOW_TEST_S,
    )


def measured(folder: Path, *arguments: str | Path) -> dict:
    """Figures that a quick run wrote as JSON, by benchmark."""
    file = folder / "figures.json"
    ran = bench(folder, *arguments, "--quick", "--json", file)
    assert ran.returncode == 0, ran.stderr
    assert list((folder / "build").glob("*")) == [], "it removes its files"
    return json.loads(file.read_text())


def test_several_benchmarks_are_measured_in_one_run(tmp_path):
    figures = measured(tmp_path, "timer", "purgatory", "planner", "log", "messages")
    assert list(figures) == ["machine", "timer", "purgatory", "planner", "log", "messages"]
    assert figures["machine"]["python"] in sys.version
    assert figures["timer"]["add + cancel, in empty calls"]["at_most"] == 13
    for setting in ("low", "high"):
        for rival in ("timing wheel", "heap", "asyncio", "sortedcontainers"):
            what = f"{setting}: {rival} at 100,000/s, CPU a request, us"
            assert figures["purgatory"][what] > 0
    assert figures["log"]["append, p50, ms"] > 0
    turns = [
        item for what, item in figures["messages"].items() if what.endswith("longest turn, ms")
    ]
    assert len(turns) > 20
    assert all(turn["value"] > 0 and turn["at_most"] == 100 for turn in turns)


@needs_h2load
def test_members_lose_nothing_while_they_are_measured(tmp_path):
    figures = measured(tmp_path, "heartbeat", "kafka", "fleet", "barrier", "session-members")
    for load in ("40 members alone", "2,000 members in batches"):
        assert figures["heartbeat"][f"{load}: refused or lost"] == 0
    assert figures["heartbeat"]["a heartbeat, in constant handlers"]["at_most"] == 1.1
    assert figures["kafka"]["pipelined: Kafka's in gRPC's"]["value"] > 0
    beating = figures["fleet"]["beating every 3 s, 20 in a call: refused or lost"]
    lost = [item["value"] for what, item in figures["barrier"].items() if what.endswith("lost")]
    assert [beating["value"], *lost] == [0, 0, 0, 0, 0]
    assert figures["session-members"]["memory of one, KiB"]["value"] > 0


@pytest.mark.skipif(missing_etcd() is not None, reason=f"{missing_etcd()}")
def test_shards_are_handed_over_and_taken_over_on_a_shared_store(tmp_path):
    with EtcdCluster() as store:
        url = f"etcd://{','.join(store.endpoints)}"
        figures = measured(tmp_path, "cluster", "log", "--store", url)
    goals = [item["value"] for item in figures["cluster"].values() if isinstance(item, dict)]
    assert len(goals) == 5
    assert all(value > 0 for value in goals)
    assert figures["log"]["append, p50, ms"] > 0


@needs_h2load
def test_two_checkouts_are_compared_in_pairs(tmp_path):
    other = tmp_path / "other"
    for package in ("coordinator", "timer"):
        shutil.copytree(ROOT / package, other / package)
    slow = other / "coordinator" / "service" / "grpc" / "group_service.py"
    answer = "        reply = self._pipeline.beat(\n"
    many_times_as_much = "        sum(range(400_000))\n"
    assert answer in slow.read_text()
    slow.write_text(slow.read_text().replace(answer, many_times_as_much + answer))
    figures = measured(tmp_path, "compare", "--against", str(other))["compare"]
    assert figures["old"] == str(other)
    assert figures["old: commit"] == "not known: no git checkout"
    assert Path(figures["new"]) == ROOT
    for what in ("a heartbeat, us", "a batch of 20, us"):
        spread = [
            figures[f"{what}: new in old, {each}"]
            for each in ("lowest", "lower quartile", "upper quartile", "highest")
        ]
        ratio = figures[f"{what}: new in old, median"]
        assert sorted([*spread, ratio["value"]]) == [*spread[:2], ratio["value"], *spread[2:]]
        assert spread[0] > 0
        assert ratio["at_most"] == 1.03
        assert figures[f"{what}: pairs"] == 3
    assert figures["a heartbeat, us: new in old, median"]["value"] < 0.5, "it runs the other's code"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_kind_of_work_of_a_member_is_measured(protocol):
    with Process(*FLAGS) as server:
        costs = MemberCosts(server.address, commits=10, rounds=1).measure(ROOT, protocol, "g")
    assert sorted(costs) == sorted(WORK)
    assert all(cost_us > 0 for cost_us in costs.values())


def test_what_is_no_checkout_is_not_compared(tmp_path):
    ran = bench(tmp_path, "compare", "--quick", "--against", tmp_path)
    assert ran.returncode == 1
    assert ran.stderr == f"bench: {tmp_path} is no checkout of this project\n"
