"""The table of metrics is the metrics; `--rewrite` writes it anew."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace

from coordinator.core.values.events import RebalanceJournaled
from coordinator.core.values.rebalance_journal import RebalanceRecord
from coordinator.core.values.replies import LogEnd
from coordinator.observe.kafka_metrics import KafkaStats
from coordinator.observe.metrics import Metrics
from coordinator.observe.overload_gauges import OverloadStats
from coordinator.runtime.garbage import ShortPauses
from coordinator.service.latency import Latency
from coordinator.shard.stats import ClusterStats, GroupStats, ShardStats, WaitStats

PAGE = Path(__file__).parents[3] / "deploy/metrics.md"
HEAD = (
    "# Metrics\n\n"
    "The series of `/metrics`. Values of labels are in snake_case, but for names of RPCs "
    "(`JoinGroup`) and gRPC's status codes. Member ids are never labels, and group ids only where "
    "`--metrics-groups` lists them. Each node of `serve --nodes` has a page of its own; "
    "`process_*` need Linux.\n\n"
    "| name | type | labels | meaning |\n"
    "|---|---|---|---|\n"
)
WORKERS = "\n## Metrics of workers\n"
"""The rest of the page, of which tests/unit/client/worker/test_metrics_page.py takes care."""


def everything() -> Metrics:
    names = ("join", "sync", "heartbeat", "produce", "fetch")
    numbers = dict.fromkeys(names, 0)
    waits = dict.fromkeys(("join", "sync", "produce", "fetch"), WaitStats())
    group = GroupStats("g", 1, {("t", 0): 1}, {("t", 0): LogEnd("t", 0, 2, 0)})
    metrics = Metrics(
        stats=lambda: [ShardStats(watched=numbers, delayed=numbers, purged=numbers, waits=waits)],
        loop_lag_s=lambda: 0.0,
        calls=lambda: {("JoinGroup", "OK"): 1},
        latencies=lambda: {"JoinGroup": Latency()},
        cluster=lambda: ClusterStats({"leading": 1}, 1, 0, False),
        kafka=lambda: KafkaStats({"librdkafka": 1}, {("JoinGroup", "librdkafka"): 1}, {"idle": 1}),
        pauses=ShortPauses(),
        overload=lambda: OverloadStats(1, {"JoinGroup": 1}, {"full": 1}, (1,), (1, 0), 1, 1),
        security=SimpleNamespace(not_after_s=math.inf, refusals={}, reload_failures=0),
        groups=["g"],
        group_stats=lambda _: [group],
    )
    record = RebalanceRecord(
        "g", "member joined", "completed", "m", "c", "h", "", 1, 2, "range", False,
        started_at_ms=1, joined_at_ms=2, synced_at_ms=3, ended_at_ms=4, leader="m",
        member_count=1, members=(),
    )  # fmt: skip
    metrics([RebalanceJournaled(record)], 4)
    return metrics


def lines() -> list[str]:
    found = []
    for family in everything().registry.collect():
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        suffix = "_total" if family.type == "counter" else "_info" * (family.type == "info")
        shown = ", ".join(f"`{label}`" for label in sorted(labels)) or "–"
        found.append(
            f"| `{family.name}{suffix}` | {family.type} | {shown} | {family.documentation} |"
        )
    return sorted(found)


def test_the_table_of_metrics_is_the_metrics(request):
    page = HEAD + "\n".join(lines()) + "\n"
    shown, workers, rest = PAGE.read_text().partition(WORKERS)
    if request.config.getoption("--rewrite"):
        PAGE.write_text(page + workers + rest)
        shown = page
    if not Path("/proc/self/stat").exists():
        shown = re.sub(r"\| `process_.*\n", "", shown)
    assert shown == page


def test_no_metric_has_a_member_for_a_label():
    assert not [line for line in lines() if "member`" in line.split("|")[3]]
