"""The page of metrics has those of workers, with the values of their labels."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from coordinator.client.worker.handlers import OnError
from coordinator.client.worker.held_partition import Stage
from coordinator.client.worker.state import WorkerMetrics
from tests.kit.documents import ROOT

prometheus_client = pytest.importorskip("prometheus_client", reason="workers do without it")

SECTION = (ROOT / "deploy/metrics.md").read_text().partition("\n## Metrics of workers\n")[2]
COUNTED = re.compile(r'counts\["([a-z ]+)"\]')
"""An event that a worker counts; `counts[decision]` is a reaction of the error policy."""


def column(name):
    """The names in backquotes in the first column of a table."""
    _, _, rest = SECTION.partition(f"| {name} |")
    table = rest.partition("\n\n")[0]
    return [
        n for row in table.splitlines()[2:] for n in re.findall("`([a-z_]+)`", row.split("|")[1])
    ]


def test_the_table_is_the_metrics():
    metrics = WorkerMetrics.of("page")
    metrics._events.labels("page", "runs")
    rows = []
    for family in prometheus_client.REGISTRY.collect():
        if family.name.startswith("coordinator_worker_"):
            samples = [stage for stage in family.samples if not stage.name.endswith("_created")]
            labels = sorted({label for sample in samples for label in sample.labels})
            shown = ", ".join(f"`{label}`" for label in labels)
            name = family.name + "_total" * (family.type == "counter")
            rows.append(f"| `{name}` | {family.type} | {shown} | {family.documentation} |")
    assert len(rows) == 3
    head = "| name | type | labels | meaning |\n|---|---|---|---|\n"
    assert head + "\n".join(sorted(rows)) + "\n\n" in SECTION


def test_the_events_are_those_that_workers_count():
    worker = ROOT / "coordinator/client/worker"
    counted = {
        event.replace(" ", "_")
        for path in worker.glob("*.py")
        for event in COUNTED.findall(path.read_text())
    }
    assert len(counted) >= 5
    assert sorted(column("`event`")) == sorted(counted | set(get_args(OnError)))


def test_the_stages_are_those_of_partitions():
    assert column("`stage`") == [stage.name.lower() for stage in Stage if stage is not Stage.ENDED]
