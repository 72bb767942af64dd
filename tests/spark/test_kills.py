"""Some kills of every kind under two drivers; a hundred by command (tests/faults/spark/kill.py)."""

from __future__ import annotations

import contextlib

import pytest

pytest.importorskip("pyspark", reason="Spark needs the extra `spark`")

from tests.faults.spark.kill import KINDS, Run, claims, kill_again_and_again

FLIGHTS = 24_000


@pytest.mark.timeout(400)
def test_each_flight_counts_once_whatever_is_killed(cluster, tmp_path):
    run = Run(tmp_path, cluster.master, cluster.archive, cluster.unpacked, "exactly-once", FLIGHTS)
    with contextlib.closing(run):
        kill_again_and_again(run, kills=len(KINDS), stops=1, seed=3)
        verdict = run.verdict()
    assert claims(run, verdict) == []
    assert (verdict.missing, verdict.duplicates) == (0, 0)
    assert run.killed == {**dict.fromkeys(KINDS, 1), "stop": 1}
