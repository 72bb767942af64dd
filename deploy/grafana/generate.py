"""The dashboards, as code: `python deploy/grafana/generate.py` writes them beside itself.

    fleet.json       all nodes: groups, members, rebalances by cause, who was lost
    group.json       one group of --metrics-groups: lag, members, its rebalances as annotations
    internals.json   a node's insides: log, timers, purgatories, event loop, calls

`--check` fails if what is there is not what this makes.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24


@dataclass(frozen=True)
class Panel:
    """A picture of some queries, each with the legend of its series.

    Args:
        unit: Grafana's name of it. kind: timeseries or stat. width: of 24 columns.
        about: what to make of it.
    """

    title: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 12
    about: str = ""


@dataclass(frozen=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


def quantile(q: float, metric: str, by: str = "") -> str:
    """Query of a histogram's quantile over the interval of the panel."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, sum by ({labels}) (rate({metric}_bucket[$__rate_interval])))"


FLEET = (
    Row(
        "Now",
        (
            Panel("Nodes", {"up": 'count(up{job="coordinator"} == 1)'}, kind="stat", width=6),
            Panel("Groups", {"": 'sum(coordinator_groups{state!="dead"})'}, kind="stat", width=6),
            Panel("Members", {"": "sum(coordinator_members)"}, kind="stat", width=6),
            Panel(
                "Groups in a rebalance",
                {"": 'sum(coordinator_groups{state=~".*_rebalance"})'},
                kind="stat",
                width=6,
            ),
        ),
    ),
    Row(
        "Rebalances",
        (
            Panel(
                "Why groups rebalance",
                {"{{cause}}": "sum by (cause) (rate(coordinator_rebalances_total"
                 "[$__rate_interval]))"},
                unit="ops",
                about="`coordinator explain GROUP` says it in sentences.",
            ),
            Panel(
                "How they end",
                {"{{outcome}}": "sum by (outcome) (rate(coordinator_rebalance_seconds_count"
                 "[$__rate_interval]))"},
                unit="ops",
                about="Interrupted: the next one began before the assignment was durable.",
            ),
            Panel(
                "How long they take",
                {
                    "p50": quantile(0.5, "coordinator_rebalance_seconds"),
                    "p90": quantile(0.9, "coordinator_rebalance_seconds"),
                    "p99": quantile(0.99, "coordinator_rebalance_seconds"),
                },
                unit="s",
            ),
            Panel(
                "Which phase takes it, p90",
                {"{{phase}}": quantile(0.9, "coordinator_rebalance_phase_seconds", "phase")},
                unit="s",
                about="Join: a member comes late. Sync: the leader computes. Durable: the log.",
            ),
            Panel(
                "Members that wait for others, p90",
                {"{{phase}}": quantile(0.9, "coordinator_member_blocked_seconds", "phase")},
                unit="s",
            ),
            Panel(
                "Members that were lost",
                {"{{cause}}": "sum by (cause) (rate(coordinator_member_evictions_total"
                 "[$__rate_interval]))"},
                unit="ops",
            ),
            Panel(
                "Partitions that change owners",
                {"moved": "sum(rate(coordinator_partitions_moved_total[$__rate_interval]))"},
                unit="ops",
            ),
            Panel(
                "Partitions without an owner",
                {"on average": "sum(rate(coordinator_partitions_unowned_seconds_total"
                 "[$__rate_interval]))"},
                about="So many at any time, for want of a finished rebalance.",
            ),
        ),
    ),
    Row(
        "Nodes",
        (
            Panel("Groups by state", {"{{state}}": "sum by (state) (coordinator_groups)"}),
            Panel(
                "Shards led",
                {"{{instance}}": 'coordinator_shards{state="leading"}'},
                about="Together they should be all that are configured.",
            ),
            Panel(
                "Controller epoch",
                {"epoch": "max(coordinator_controller_epoch)"},
                about="Each step is another node that decides.",
            ),
            Panel(
                "Commits",
                {"{{instance}}": "rate(coordinator_offset_commits_total[$__rate_interval])"},
                unit="ops",
            ),
        ),
    ),
)  # fmt: skip

GROUP = (
    Row(
        "Group $group",
        (
            Panel(
                "Lag",
                {"{{topic}}": 'sum by (topic) (coordinator_group_lag{group="$group"})'},
                about="The red lines are rebalances.",
            ),
            Panel("Members", {"members": 'coordinator_group_members{group="$group"}'}),
            Panel(
                "Lag by partition",
                {"{{topic}} {{partition}}": 'coordinator_group_lag{group="$group"}'},
            ),
            Panel(
                "Progress",
                {"{{topic}}": 'sum by (topic) (rate(coordinator_group_committed_offset'
                 '{group="$group"}[$__rate_interval]))'},
                unit="ops",
                about="Offsets committed a second.",
            ),
        ),
    ),
    Row(
        "Rebalances",
        (
            Panel(
                "Why it rebalanced",
                {"{{cause}}": 'sum by (cause) (increase(coordinator_group_rebalances_total'
                 '{group="$group"}[$__rate_interval]))'},
            ),
            Panel(
                "Time spent in rebalances",
                {"share": 'sum(rate(coordinator_group_rebalance_seconds_total{group="$group"}'
                 "[$__rate_interval]))"},
                unit="percentunit",
            ),
        ),
    ),
)  # fmt: skip

INTERNALS = (
    Row(
        "The log",
        (
            Panel(
                "Until an entry is durable",
                {
                    "p50": quantile(0.5, "coordinator_append_seconds"),
                    "p99": quantile(0.99, "coordinator_append_seconds"),
                },
                unit="s",
            ),
            Panel(
                "Records of an entry, mean",
                {"{{instance}}": "rate(coordinator_append_records_sum[$__rate_interval]) / "
                 "rate(coordinator_append_records_count[$__rate_interval])"},
                about="The busier, the larger: entries gather while one is under way.",
            ),
            Panel(
                "A write of SQLite, until the disk has it",
                {
                    "p50": quantile(0.5, "coordinator_flush_seconds"),
                    "p99": quantile(0.99, "coordinator_flush_seconds"),
                },
                unit="s",
                about="One write carries the entries of all shards that were waiting.",
            ),
            Panel(
                "Entries that share a write, mean",
                {"{{instance}}": "rate(coordinator_flush_appends_sum[$__rate_interval]) / "
                 "rate(coordinator_flush_appends_count[$__rate_interval])"},
            ),
            Panel("Writes under way", {"{{instance}}": "coordinator_pending_appends"}),
            Panel(
                "Records that wait for replicas",
                {"{{instance}}": "coordinator_high_watermark_lag_records"},
            ),
        ),
    ),
    Row(
        "Timers and purgatories",
        (
            Panel("Timers pending", {"{{instance}}": "coordinator_timers_pending"}),
            Panel(
                "Watched", {"{{instance}} {{purgatory}}": "coordinator_purgatory_watched"}
            ),
            Panel(
                "Delayed", {"{{instance}} {{purgatory}}": "coordinator_purgatory_delayed"}
            ),
            Panel(
                "Time in purgatory, p90",
                {"{{purgatory}}": quantile(0.9, "coordinator_purgatory_wait_seconds", "purgatory")},
                unit="s",
                about="Heartbeats are not there: theirs ends with the session.",
            ),
            Panel(
                "Waits that ended by time",
                {"{{purgatory}}": "sum by (purgatory) (rate(coordinator_purgatory_expired_total"
                 "[$__rate_interval]))"},
                unit="ops",
            ),
            Panel(
                "Timers' lag",
                {"{{instance}}": "coordinator_timer_lag_seconds"},
                unit="s",
                about="How late the last thing that was due came.",
            ),
            Panel("Calls parked", {"{{instance}} {{kind}}": "coordinator_parked_calls"}),
        ),
    ),
    Row(
        "The process",
        (
            Panel(
                "Event loop's lag",
                {"{{instance}}": "coordinator_event_loop_lag_seconds"},
                unit="s",
                about="Everything is late by so much, heartbeats too.",
            ),
            Panel(
                "Age of the oldest call that waits",
                {"{{instance}}": "coordinator_queue_age_seconds"},
                unit="s",
                about="Above a second the node does not keep up, and counts nobody's silence.",
            ),
            Panel(
                "Calls that were not served, by reason",
                {"{{instance}} {{reason}}": "rate(coordinator_dropped_calls_total"
                 "[$__rate_interval])"},
                unit="ops",
            ),
            Panel(
                "Collections of garbage, p99",
                {"generation {{generation}}":
                 quantile(0.99, "coordinator_gc_pause_seconds", "generation")},
                unit="s",
                about="Nothing else happens meanwhile.",
            ),
            Panel(
                "Heartbeats",
                {"{{instance}}": "rate(coordinator_heartbeats_total[$__rate_interval])"},
                unit="ops",
            ),
            Panel(
                "A heartbeat, without gRPC",
                {
                    "p50": quantile(0.5, "coordinator_heartbeat_seconds"),
                    "p99": quantile(0.99, "coordinator_heartbeat_seconds"),
                },
                unit="s",
            ),
            Panel(
                "Calls by method",
                {"{{method}}": "sum by (method) (rate(coordinator_grpc_calls_total"
                 "[$__rate_interval]))"},
                unit="ops",
            ),
            Panel(
                "Calls refused",
                {"{{method}} {{code}}": 'sum by (method, code) (rate(coordinator_grpc_calls_total'
                 '{code!="OK"}[$__rate_interval]))'},
                unit="ops",
            ),
            Panel(
                "Offsets that expire",
                {"{{instance}}": "rate(coordinator_offset_expirations_total[$__rate_interval])"},
                unit="ops",
            ),
        ),
    ),
)  # fmt: skip


def dashboard(
    uid: str, title: str, rows: tuple[Row, ...], *, of_a_group: bool = False
) -> dict[str, Any]:
    """A dashboard as Grafana has it."""
    variables: list[dict[str, Any]] = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    ]
    annotations: list[dict[str, Any]] = []
    if of_a_group:
        variables.append(
            {
                "name": "group",
                "type": "query",
                "datasource": DATASOURCE,
                "query": "label_values(coordinator_group_members, group)",
                "refresh": 2,
                "sort": 1,
            }
        )
        annotations.append(
            {
                "name": "Rebalances",
                "datasource": DATASOURCE,
                "enable": True,
                "iconColor": "red",
                "expr": 'increase(coordinator_group_rebalances_total{group="$group"}[1m]) > 0',
                "step": "30s",
                "titleFormat": "Rebalance",
                "textFormat": "{{cause}}",
            }
        )
    return {
        "uid": uid,
        "title": title,
        "tags": ["consumer groups"],
        "schemaVersion": 39,
        "editable": True,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": variables},
        "annotations": {"list": annotations},
        "panels": _panels(rows),
    }


def _panels(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        place = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": row.title, "gridPos": place})
        y += 1
        x = 0
        for panel in row.panels:
            height = 4 if panel.kind == "stat" else 8
            if x + panel.width > COLUMNS:
                x, y = 0, y + height
            place = {"x": x, "y": y, "w": panel.width, "h": height}
            panels.append(_panel(len(panels) + 1, panel, place))
            x += panel.width
        y += height
    return panels


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + i), "datasource": DATASOURCE, "expr": expr, "legendFormat": legend}
        for i, (legend, expr) in enumerate(panel.queries.items())
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def dashboards() -> dict[str, str]:
    """Each file's name and text."""
    made = {
        "fleet.json": dashboard("coordinator-fleet", "Consumer groups: fleet", FLEET),
        "group.json": dashboard(
            "coordinator-group", "Consumer groups: one group", GROUP, of_a_group=True
        ),
        "internals.json": dashboard(
            "coordinator-internals", "Consumer groups: coordinator internals", INTERNALS
        ),
    }
    return {name: json.dumps(content, indent=1) + "\n" for name, content in made.items()}


def main() -> int:
    stale = 0
    for name, text in dashboards().items():
        path = FOLDER / name
        if "--check" in sys.argv:
            stale += not path.exists() or path.read_text() != text
        else:
            path.write_text(text)
    return min(stale, 1)


if __name__ == "__main__":
    sys.exit(main())
