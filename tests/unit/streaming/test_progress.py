"""The share of a stream in a query's progress: what is told comes back, other sources do not."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace

import pytest

from coordinator.spark import logs
from coordinator.spark.progress import Share, shares_of

SHARE = Share("g", "t", "m-1", 3, {0: 10, 2: 0}, {0: 100, 2: 5}, {0: 40})


def progress(*offsets: str | None) -> SimpleNamespace:
    return SimpleNamespace(sources=[SimpleNamespace(latestOffset=offset) for offset in offsets])


def test_lag_counts_the_batch_and_the_backlog_does_not():
    assert (SHARE.owned, SHARE.lag, SHARE.backlog) == ([0, 2], 95, 65)
    shrunk = Share("g", "t", "m", 1, {0: 100}, {0: 90}, {})
    assert (shrunk.lag, shrunk.backlog) == (0, 0)


def test_a_share_comes_back_from_spark_and_other_sources_have_none():
    document = json.dumps(SHARE.to_offset())
    kafka = '{"flights": {"0": 12}}'
    (found,) = shares_of(progress(kafka, document, None, "", "12", "no JSON"))
    assert (found.owned, found.lag, found.backlog) == (SHARE.owned, SHARE.lag, SHARE.backlog)
    assert (found.group, found.topic, found.member, found.partitions) == ("g", "t", "m-1", 3)
    assert json.loads(document)["offsets"]["2"] == {"committed": 0, "planned": 0, "end": 5}


@pytest.mark.parametrize("is_spark", [True, False])
@pytest.mark.parametrize("is_configured", [True, False])
def test_warnings_have_time_and_level_in_sparks_processes_alone(
    monkeypatch, capsys, is_spark, is_configured
):
    """Unless the application has configured logging there."""
    logger, handlers = logging.getLogger("coordinator"), [logging.NullHandler()]
    monkeypatch.setattr(logging.getLogger(), "handlers", handlers if is_configured else [])
    monkeypatch.setattr(logger, "handlers", [])
    if is_spark:
        monkeypatch.setenv("PYTHON_WORKER_FACTORY_PORT", "1")
    logs.log_like_spark()
    logs.log_like_spark()
    logging.getLogger("coordinator.spark.x").warning("unreachable at 127.0.0.1:1")
    expected = " WARNING coordinator.spark.x: unreachable at 127.0.0.1:1"
    assert capsys.readouterr().err.count(expected) == (is_spark and not is_configured)
