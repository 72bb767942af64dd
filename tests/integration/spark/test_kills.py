"""A kill of every kind under two drivers; `python -m tests.campaigns.faults.spark.kill`: more."""

from __future__ import annotations

import contextlib

import pytest

pytest.importorskip("pyspark", reason="Spark needs the extra `spark`")

from tests.campaigns.faults.spark.kill import KINDS, Run, claims, kill_again_and_again


@pytest.mark.timeout(900)
def test_each_flight_counts_once_whatever_is_killed(cluster, tmp_path):
    run = Run(tmp_path, cluster.master, cluster.archive, cluster.unpacked, "exactly-once")
    with contextlib.closing(run):
        kill_again_and_again(run, kills=len(KINDS), stops=1, seed=3, everything=False)
        verdict = run.verdict()
    assert claims(run, verdict) == []
    assert (verdict.missing, verdict.duplicates) == (0, 0)
    stops = run.killed.pop("stop")
    assert run.killed == dict.fromkeys(KINDS, 1)
    assert stops >= 1
    assert run.refused("zombie") >= 1
