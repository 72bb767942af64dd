"""Queries of one group that read different topics, and more queries than partitions."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("pyspark", reason="streams need the extra `spark`")

from coordinator.spark import planner
from tests.integration.rows.test_changed_logs import A, B, Query, server, write
from tests.integration.rows.test_new_partitions import QUICK, plan
from tests.integration.waiting import wait_until

__all__ = ["server"]


@pytest.fixture
def logs(tmp_path):
    for name, partitions in (("t", 1), ("u", 3)):
        for number in range(partitions):
            (tmp_path / name / str(number)).mkdir(parents=True)
            write(tmp_path / name / str(number) / B, 10)
    return tmp_path


@pytest.mark.parametrize("protocol", ["classic", "session"])
async def test_queries_with_different_topics_read_all_of_both(server, logs, protocol):
    def story():
        seen = {}
        first = Query(server, logs / "t", protocol=protocol, **QUICK)
        plan(first)
        first.run()
        second = Query(server, logs / "u", topic="u", protocol=protocol, **QUICK)

        def both():
            for q in (first, second):
                if q.plan():
                    seen.setdefault(q.options["topic"], {}).update(q.planned["ranges"])
                    q.run()
            return len(seen.get("u", {})) == 3

        wait_until(both)

    await asyncio.to_thread(story)


@pytest.mark.parametrize("protocol", ["classic", "session"])
async def test_a_query_without_a_partition_waits_for_one_without_an_error(
    server, logs, protocol, monkeypatch
):
    monkeypatch.setattr(planner, "JOIN_PATIENCE_S", 20.0)

    def story():
        first = Query(server, logs / "t", protocol=protocol, **QUICK)
        plan(first)
        first.run()
        second = Query(server, logs / "t", protocol=protocol, **QUICK)
        assert second.plan() == {}
        first.plan()
        first.reader.stop()
        write(logs / "t" / "0" / A, 3)
        assert plan(second) == {"0": (10, 13)}

    await asyncio.to_thread(story)
