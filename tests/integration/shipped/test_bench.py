"""The benchmarks do what they say, in small: the figures themselves mean nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.stores import EtcdCluster, missing_etcd
from tests.patience import SLOW_TEST_S

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


def figures(what: str, folder: Path, *flags: str | Path) -> dict:
    return measured(folder, what, *flags)[what]


def test_connections_measures_idle_ones_and_the_one_too_many(tmp_path):
    found = figures("connections", tmp_path)
    for prefix in ("", "tls_"):
        assert found[f"{prefix}connections"] == 50
        assert found[f"{prefix}memory of a connection, KiB"] > 0
        assert found[f"{prefix}one more is refused with"] == "THROTTLING_QUOTA_EXCEEDED"


def test_purgatory_measures_every_rival_in_both_settings_and_draws_them(tmp_path):
    pytest.importorskip("matplotlib")
    folder = tmp_path / "pictures"
    found = measured(tmp_path, "purgatory", "--requests", "1000", "--pictures", folder)
    figures = found["purgatory"]
    for setting in ("low", "high"):
        for rival in ("timing wheel", "heap", "asyncio", "sortedcontainers"):
            assert figures[f"{setting}: {rival}, most sustained, requests/s"] > 0
            assert figures[f"{setting}: {rival} at 100,000/s, CPU a request, us"] > 0
        assert "met" in figures[f"{setting}: timing wheel at 100,000/s, % of a core"]
    curves = found["pictures"]["purgatory"]["low time-out rate: sustained, thousand/s"]
    assert [asked for asked, _ in curves["timing wheel"]] == [25, 100]
    assert sorted(path.name for path in folder.iterdir()) == ["purgatory.png", "purgatory.svg"]
    assert "asked, thousand requests/s" in (folder / "purgatory.svg").read_text()


def test_timer_prints_a_table_of_goals(tmp_path):
    ran = bench(tmp_path, "timer", "--quick")
    assert ran.returncode == 0, ran.stderr
    assert "add + cancel, in empty calls" in ran.stdout
    assert "13 at most" in ran.stdout


def test_several_benchmarks_are_measured_in_one_run(tmp_path):
    found = measured(tmp_path, "soak", "assign", "log", "journal")
    assert list(found) == ["machine", "assign", "journal", "log", "soak"]
    assert found["soak"]["40 members alone: refused or lost"] == 0
    assert found["log"]["append, p50, ms"] > 0
    assert found["journal"]["server CPU of a call beside that, us"] > 0
    assert found["machine"]["python"] in sys.version


def test_messages_are_measured_one_by_one(tmp_path):
    found = figures("messages", tmp_path)
    turns = [figure for what, figure in found.items() if what.endswith("longest turn, ms")]
    assert len(turns) > 20
    assert all(turn["value"] > 0 and turn["at_most"] == 100 for turn in turns)


def test_imports_are_held_to_a_share_of_grpcs(tmp_path):
    found = figures("imports", tmp_path)
    assert found["import coordinator.client: CPU, in import grpc"]["at_most"] == 0.5
    assert found["import coordinator.client: MiB"]["at_most"] == 4
    assert found["all its names: modules"] > 10
    assert found["a member made: CPU, in import grpc"] > 0


@needs_h2load
def test_heartbeats_are_all_answered_and_weighed_against_a_constant(tmp_path):
    found = figures("heartbeat", tmp_path)
    for load in ("40 members alone", "2,000 members in batches"):
        assert found[f"{load}: refused or lost"] == 0
        assert found[f"{load}: p50, ms"] > 0
    assert found["a heartbeat, in constant handlers"]["at_most"] == 1.1
    assert found["a heartbeat, us of the server's CPU"] > 0


@needs_h2load
def test_barriers_lose_nobody(tmp_path):
    found = figures("barrier", tmp_path)
    lost = [goal["value"] for name, goal in found.items() if name.endswith("lost")]
    assert lost == [0, 0, 0, 0, 0]
    assert found["a parked call, KiB of the server's memory"]["value"] > 0
    assert found["the last one released after the first, ms"]["value"] > 0


def test_a_fleet_notices_neither_restart(tmp_path):
    found = figures("fleet", tmp_path)
    assert [found[name]["value"] for name in (
        "beating every 3 s, 20 in a call: refused or lost",
        "the server restarted: members that were lost", "failed", "rebalances",
    )] == [0, 0, 0, 0]  # fmt: skip


def test_partitions_rest_while_workers_are_restarted_and_killed(tmp_path):
    found = figures("rolling", tmp_path)
    for name in ("async def", "def"):
        assert found[f"{name}: longest rest of a partition, s"]["at_most"] == 1.3
    for name in ("async def", "def", "range", "killed"):
        assert found[f"{name}: partitions that changed workers"] > 0
        assert found[f"{name}: rebalances"] > 0
        assert found[f"{name}: their rest, mean, s"] > 0
    assert found["killed: longest rest of a partition, s"] > 1, "nobody hears of a kill"


def test_what_comes_and_goes_is_counted_and_weighed(tmp_path):
    found = figures("churn", tmp_path)
    assert found["groups that came and went"] > 0
    assert found["blocks in the last quarter, in those"]["at_most"] == 1.02
    assert found["series in the last quarter, in those of the second"]["value"] > 0


@pytest.mark.skipif(missing_etcd() is not None, reason=f"{missing_etcd()}")
def test_shards_are_handed_over_and_taken_over_on_a_shared_store(tmp_path):
    with EtcdCluster() as store:
        found = figures("cluster", tmp_path, "--store", f"etcd://{','.join(store.endpoints)}")
    goals = {what: figure["value"] for what, figure in found.items() if isinstance(figure, dict)}
    assert len(goals) == 6
    assert all(value > 0 for value in goals.values())


@needs_h2load
def test_two_nodes_are_asked_beside_one(tmp_path):
    found = figures("cores", tmp_path)
    assert found["Heartbeat, a core each: 2 nodes, in one"]["at_least"] == 1.7
    assert found["HeartbeatBatch, a core each: 2 nodes, in one"]["value"] > 0
    assert found["HeartbeatBatch, cores shared: 2 nodes, in one"] > 0


@needs_h2load
def test_two_checkouts_are_compared_in_pairs(tmp_path):
    other = tmp_path / "other"
    for package in ("coordinator", "timer"):
        shutil.copytree(ROOT / package, other / package)
    slow = other / "coordinator" / "service" / "grpc" / "group_service.py"
    answer = "        reply = self._pipeline.beat(\n"
    many_times_as_much = "        sum(range(40_000))\n"
    assert answer in slow.read_text()
    slow.write_text(slow.read_text().replace(answer, many_times_as_much + answer))
    found = figures("compare", tmp_path, "--against", str(other))
    assert found["old"] == str(other)
    assert found["old: commit"] == "not known: no git checkout"
    assert Path(found["new"]) == ROOT
    for what in ("a heartbeat, us", "a batch of 20, us", "a barrier of 40, us a member"):
        spread = [
            found[f"{what}: new in old, {each}"]
            for each in ("lowest", "lower quartile", "upper quartile", "highest")
        ]
        ratio = found[f"{what}: new in old, median"]
        assert sorted([*spread, ratio["value"]]) == [*spread[:2], ratio["value"], *spread[2:]]
        assert spread[0] > 0
        assert ratio["at_most"] == 1.03
        assert found[f"{what}: pairs"] == 3
    assert found["a heartbeat, us: new in old, median"]["value"] < 0.5, "it runs the other's code"


def test_what_is_no_checkout_is_not_compared(tmp_path):
    ran = bench(tmp_path, "compare", "--quick", "--against", tmp_path)
    assert ran.returncode == 1
    assert ran.stderr == f"bench: {tmp_path} is no checkout of this project\n"
