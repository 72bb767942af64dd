"""Dashboards, rows, panels, queries and thresholds, and their JSON.

The JSON is that of Grafana's dashboards of schema version 39, which Grafana 11 and 12 read.
`tests/unit/deploy/test_dashboards.py` reads it with Grafana's own models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
TAG = "consumer groups"

JOB = 'job=~"$job"'
ON = f'{JOB},instance=~"$instance"'
"""Labels that the variables of a dashboard choose, for the braces of every selector."""
RATE = "[$__rate_interval]"
COUNTS = frozenset({"short", "ops", "opm", "reqps"})
"""Units of which 1 is a small value."""


@dataclass(frozen=True)
class Panel:
    """Queries, each with the legend of its series, and how they are shown.

    Args:
        title: what is shown, in plain words.
        about: what a reader makes of it: shown behind the panel's (i).
        queries: expressions by legend.
        unit: Grafana's id of the unit. kind: timeseries or stat. width: of 24 columns.
        thresholds: values from which on it is orange, and red.
        none: text in place of `No data`, where a healthy node has no series.
        max: top of the axis. decimals: digits behind the point.
        legend: its place: bottom, or right, where series are many.
        link: title and address of a link behind each series.
    """

    title: str
    about: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    thresholds: tuple[float | None, float | None] = (None, None)
    none: str = ""
    max: float | None = None
    link: tuple[str, str] | None = None
    stacked: bool = False
    legend: str = "bottom"
    decimals: int | None = None


@dataclass(frozen=True)
class Row:
    """A titled row of panels."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """A dashboard. `of_group`: it shows one group, which a variable chooses."""

    uid: str
    title: str
    about: str
    rows: tuple[Row, ...]
    of_group: bool = False


def rate(metric: str, *more: str, by: str = "") -> str:
    """Sum of a counter's rate a second, by labels."""
    return f"{_sum(by)}(rate({metric}{{{','.join((ON, *more))}}}{RATE}))"


def quantile(q: float, metric: str, *more: str, by: str = "") -> str:
    """Quantile of a histogram over the interval of the panel."""
    labels = f"le, {by}" if by else "le"
    selector = ",".join((ON, *more))
    rates = f"sum by ({labels}) (rate({metric}_bucket{{{selector}}}{RATE}))"
    return f"histogram_quantile({q}, {rates})"


def mean(metric: str) -> str:
    """Mean of a histogram over the interval of the panel, by node."""
    return f"{rate(f'{metric}_sum', by='instance')} / {rate(f'{metric}_count', by='instance')}"


def total(metric: str, *more: str, by: str = "") -> str:
    """Sum of a gauge, by labels."""
    return f"{_sum(by)}({metric}{{{','.join((ON, *more))}}})"


def _sum(by: str) -> str:
    return f"sum by ({by}) " if by else "sum"


def as_json(dashboard: Dashboard, all_of_them: tuple[Dashboard, ...]) -> dict[str, Any]:
    """A dashboard as Grafana stores it, with links to the others."""
    others = [other for other in all_of_them if other is not dashboard]
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": [TAG],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "links": [_link(other) for other in others],
        "templating": {"list": _variables(of_group=dashboard.of_group)},
        "annotations": {"list": [_rebalances()] if dashboard.of_group else []},
        "panels": _panels(dashboard.rows),
    }


def _link(other: Dashboard) -> dict[str, Any]:
    return {
        "type": "link",
        "title": other.title,
        "tooltip": other.about,
        "icon": "dashboard",
        "url": f"/d/{other.uid}",
        "tags": [],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
    }


def _variables(*, of_group: bool) -> list[dict[str, Any]]:
    found = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
        _choice("job", "Job", "label_values(coordinator_build_info, job)"),
        _choice("instance", "Node", f"label_values(coordinator_build_info{{{JOB}}}, instance)"),
    ]
    if of_group:
        query = f"label_values(coordinator_group_members{{{ON}}}, group)"
        found.append({**_variable("group", "Group", query), "multi": False, "includeAll": False})
    return found


def _choice(name: str, label: str, query: str) -> dict[str, Any]:
    everything = {"text": ["All"], "value": ["$__all"], "selected": True}
    more = {"multi": True, "includeAll": True, "allValue": ".+", "current": everything}
    return {**_variable(name, label, query), **more}


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": query,
        "refresh": 2,  # When the time range changes.
        "sort": 1,
    }


def _rebalances() -> dict[str, Any]:
    expression = f'increase(coordinator_group_rebalances_total{{{ON},group="$group"}}[1m]) > 0'
    return {
        "name": "Rebalances",
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": expression,
        "step": "30s",
        "titleFormat": "Rebalance",
        "textFormat": "{{cause}}",
    }


def _panels(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        place = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": row.title, "gridPos": place,
             "collapsed": False, "panels": []}
        )  # fmt: skip
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
        {
            "refId": chr(ord("A") + i),
            "datasource": DATASOURCE,
            "expr": expression,
            "legendFormat": legend,
            "range": panel.kind != "stat",
            "instant": panel.kind == "stat",
        }
        for i, (legend, expression) in enumerate(panel.queries.items())
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        "targets": targets,
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    orange, red = panel.thresholds
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    steps += [
        {"color": color, "value": value}
        for color, value in (("orange", orange), ("red", red))
        if value is not None
    ]
    found: dict[str, Any] = {
        "unit": panel.unit,
        "min": 0,
        "color": {"mode": "thresholds" if panel.kind == "stat" else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.max is not None:
        found["max"] = panel.max
    if panel.decimals is not None:
        found["decimals"] = panel.decimals
    if panel.none:
        found["noValue"] = panel.none
    if panel.link is not None:
        title, url = panel.link
        found["links"] = [{"title": title, "url": url, "targetBlank": False}]
    if panel.kind == "timeseries":
        found["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 10,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            # Grafana draws a line of zeros below an axis up to 100.
            **({"axisSoftMax": 1} if panel.unit in COUNTS else {}),
            "thresholdsStyle": {"mode": "dashed" if len(steps) > 1 else "off"},
        }
    return found


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "auto",
            "textMode": "value",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        }
    return {
        "legend": {
            "displayMode": "list", "placement": panel.legend, "showLegend": True, "calcs": [],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }  # fmt: skip
