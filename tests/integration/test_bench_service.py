"""The benchmarks of the service do what they say, in small: the figures themselves mean nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from tests.patience import SLOW_TEST_S

pytestmark = pytest.mark.skipif(
    shutil.which("h2load") is None,
    reason="no h2load found (on Debian: apt-get install nghttp2-client)",
)


def figures(what: str, folder) -> dict:
    file = folder / "figures.json"
    command = [sys.executable, "-m", "coordinator", "bench", what, "--quick", "--json", str(file)]
    ran = subprocess.run(
        command, cwd=folder, check=False, capture_output=True, text=True, timeout=SLOW_TEST_S
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(file.read_text())[what]


def test_heartbeats_are_all_answered_and_weighed_against_a_constant(tmp_path):
    found = figures("heartbeat", tmp_path)
    for load in ("40 members alone", "2,000 members in batches", "2,000 members on streams"):
        assert found[f"{load}: refused or lost"] == 0
        assert found[f"{load}: p50, ms"] > 0
    assert found["a heartbeat, in constant handlers"]["at_most"] == 1.1
    assert found["a heartbeat, us of the server's CPU"] > 0


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


def test_what_comes_and_goes_is_counted_and_weighed(tmp_path):
    found = figures("churn", tmp_path)
    assert found["groups that came and went"] > 0
    assert found["blocks in the last quarter, in those"]["at_most"] == 1.02
    assert found["series in the last quarter, in those of the second"]["value"] > 0


def test_two_nodes_are_asked_beside_one(tmp_path):
    found = figures("cores", tmp_path)
    assert found["Heartbeat, a core each: 2 nodes, in one"]["at_least"] == 1.7
    assert found["HeartbeatBatch, a core each: 2 nodes, in one"]["value"] > 0
    assert found["HeartbeatBatch, cores shared: 2 nodes, in one"] > 0
