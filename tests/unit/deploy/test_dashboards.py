"""Dashboards are what the code makes, and everything that they name exists."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

DEPLOY = Path(__file__).parents[3] / "deploy"
GRAFANA = DEPLOY / "grafana"
DASHBOARDS = {
    name: json.loads((GRAFANA / f"{name}.json").read_text())
    for name in ("fleet", "group", "internals")
}
PANELS = [
    pytest.param(panel, id=f"{name}: {panel['title']}")
    for name, content in DASHBOARDS.items()
    for panel in content["panels"]
    if panel["type"] != "row"
]
OF_PROMETHEUS = {"step", "titleFormat", "textFormat"}
"""Fields of annotations that the data source reads, which Grafana's models do not know."""


def test_dashboards_are_what_the_code_makes():
    command = [sys.executable, str(GRAFANA / "generate.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0


@pytest.mark.parametrize("name", DASHBOARDS)
def test_grafana_knows_every_field(name):
    register_default_plugins()
    parsed = JSONEncoder(sort_keys=True).encode(Dashboard.from_json(DASHBOARDS[name]))
    assert sorted(lost(DASHBOARDS[name], json.loads(parsed))) == []


def lost(given, parsed, place: str = ""):
    """Places whose value Grafana's models do not have, or have changed."""
    if isinstance(given, dict):
        for key in given.keys() - OF_PROMETHEUS:
            if key not in parsed:
                yield f"{place}/{key}"
            else:
                yield from lost(given[key], parsed[key], f"{place}/{key}")
    elif isinstance(given, list):
        for number, (one, other) in enumerate(zip(given, parsed, strict=True)):
            yield from lost(one, other, f"{place}/{number}")
    elif given != parsed:
        yield place


@pytest.mark.parametrize("panel", PANELS)
def test_every_panel_says_what_it_shows_of_the_chosen_nodes(panel):
    assert re.fullmatch(r"[A-Z].{1,60}[^.]", panel["title"])
    assert re.fullmatch(r"[A-Z0-9].*\.", panel["description"])
    assert panel["fieldConfig"]["defaults"]["unit"]
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [step["value"] for step in steps[1:]] == sorted(step["value"] for step in steps[1:])
    for target in panel["targets"]:
        selectors = re.findall(r"\{([^{}]*)\}", target["expr"])
        assert selectors
        assert all('job=~"$job"' in selector for selector in selectors)


def test_dashboards_choose_jobs_and_nodes_and_lead_to_each_other():
    uids = {content["uid"] for content in DASHBOARDS.values()}
    for content in DASHBOARDS.values():
        names = [variable["name"] for variable in content["templating"]["list"]]
        assert names[:3] == ["datasource", "job", "instance"]
        linked = {link["url"].removeprefix("/d/") for link in content["links"]}
        assert linked == uids - {content["uid"]}
        assert all(link["includeVars"] and link["keepTime"] for link in content["links"])
    text = json.dumps(DASHBOARDS)
    assert set(re.findall(r"/d/([\w-]+)", text)) == uids


def test_names_of_metrics_and_alerts_exist():
    text = json.dumps(DASHBOARDS)
    documented = set(re.findall(r"^\| `(\w+)`", (DEPLOY / "metrics.md").read_text(), re.MULTILINE))
    used = set(re.findall(r"\b(?:coordinator|process|python)_[a-z_]+\b", text))
    bare = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    assert {"coordinator_rebalance_seconds", "process_cpu_seconds_total"} <= bare
    assert bare <= documented
    alerts = (DEPLOY / "alerts/coordinator.rules.yml").read_text()
    named = set(re.findall(r"\bCoordinator[A-Z]\w+", text))
    assert named <= set(re.findall(r"- alert: (\w+)", alerts))
