"""A kill of every kind under two drivers; `python -m tests.campaigns.faults.spark.kill`: more."""

from __future__ import annotations

import contextlib

import pytest

pytest.importorskip("pyspark", reason="Spark needs the extra `spark`")

from tests.campaigns.faults.spark.kill import KINDS, Run, claims, kill_again_and_again

OF_SPARK, OF_THE_GROUP = KINDS[:3], KINDS[3:]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("sink", "protocol", "kinds"),
    [("parquet", "classic", OF_SPARK), ("delta", "session", OF_THE_GROUP)],
    ids=["classic", "session"],
)
def test_each_flight_counts_once_whatever_is_killed(cluster, tmp_path, sink, protocol, kinds):
    run = Run(tmp_path, cluster, sink, protocol)
    with contextlib.closing(run):
        kill_again_and_again(run, len(kinds), stops=1, seed=3, kinds=kinds, everything=False)
        verdict = run.verdict()
    assert claims(run, verdict) == []
    assert (verdict.missing, verdict.duplicates) == (0, 0)
    stops = run.killed.pop("stop")
    assert run.killed == dict.fromkeys(kinds, 1)
    assert stops >= 1
    assert run.refused("zombie") >= 1
