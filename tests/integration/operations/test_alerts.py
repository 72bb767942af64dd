"""Alerts: the rules are sound, each fires when it should, and a real Prometheus sees it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration.operations.prometheus import MISSING, Prometheus
from tests.kit.serving import Process

ALERTS = Path(__file__).parents[3] / "deploy/alerts"
RULES = ALERTS / "coordinator.rules.yml"
KAFKA = ALERTS / "kafka-names.rules.yml"

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

ON = 'instance="a:1",job="coordinator"'
FIRES = {
    "CoordinatorDown": ([(f"up{{{ON}}}", "0x10")], "3m"),
    "CoordinatorCannotWrite": (
        [(f'coordinator_rebalance_seconds_count{{outcome="failed",{ON}}}', "0 0 1 1 1")],
        "4m",
    ),
    "CoordinatorWritesHang": ([(f"coordinator_pending_appends{{{ON}}}", "1x10")], "5m"),
    "CoordinatorLogSlow": (
        [
            (f'coordinator_append_seconds_bucket{{le="0.25",{ON}}}', "0+5x30"),
            (f'coordinator_append_seconds_bucket{{le="1",{ON}}}', "0+10x30"),
            (f'coordinator_append_seconds_bucket{{le="+Inf",{ON}}}', "0+10x30"),
        ],
        "20m",
    ),
    "CoordinatorLoopBlocked": ([(f"coordinator_event_loop_lag_seconds{{{ON}}}", "0.4x10")], "5m"),
    "CoordinatorQueueOld": ([(f"coordinator_queue_age_seconds{{{ON}}}", "2x10")], "5m"),
    "CoordinatorRebalancesOften": (
        [
            (f'coordinator_rebalances_total{{cause="member left",{ON}}}', "0+20x60"),
            (f'coordinator_groups{{state="stable",{ON}}}', "10x60"),
        ],
        "40m",
    ),
    "CoordinatorRebalancesSlow": (
        [
            (f'coordinator_rebalance_seconds_bucket{{outcome="completed",le="30",{ON}}}', "0+1x60"),
            (f'coordinator_rebalance_seconds_bucket{{outcome="completed",le="60",{ON}}}', "0+9x60"),
            (
                f'coordinator_rebalance_seconds_bucket{{outcome="completed",le="+Inf",{ON}}}',
                "0+9x60",
            ),
        ],
        "40m",
    ),
    "CoordinatorMembersLost": (
        [
            (f'coordinator_member_evictions_total{{cause="session_expired",{ON}}}', "0 0 30 30"),
            (f"coordinator_members{{{ON}}}", "100 100 70 70"),
        ],
        "3m",
    ),
    "CoordinatorPlansFail": (
        [(f"coordinator_session_plan_failures_total{{{ON}}}", "0 1 2 3 3")],
        "4m",
    ),
    "CoordinatorShardsWithoutLeader": (
        [
            (f'coordinator_shards{{state="leading",{ON}}}', "15x10"),
            (f"coordinator_shards_configured{{{ON}}}", "16x10"),
        ],
        "5m",
    ),
    "CoordinatorNoController": (
        [
            (f"coordinator_is_controller{{{ON}}}", "0x10"),
            (f"coordinator_controller_epoch{{{ON}}}", "7x10"),
        ],
        "5m",
    ),
    "CoordinatorUndecided": (
        [
            (f"coordinator_undecided_seconds{{{ON}}}", "0.4 0.9 3 63"),
            (f"coordinator_store_session_seconds{{{ON}}}", "2x10"),
        ],
        "2m",
    ),
    "CoordinatorStoreWentBack": (
        [(f"coordinator_store_lineage{{{ON}}}", "1 1 1 2 2 2")],
        "4m",
    ),
    "CoordinatorGroupLagGrows": (
        [
            (f'coordinator_group_lag{{group="g",topic="t",partition="0",{ON}}}', "0+500x60"),
        ],
        "40m",
    ),
    "CoordinatorSessionHandoffsForced": (
        [(f'coordinator_session_handoffs_total{{outcome="forced",{ON}}}', "0 2 4 6 6")],
        "4m",
    ),
    "CoordinatorSessionPartitionsFree": (
        [(f'coordinator_session_partitions{{state="free",{ON}}}', "3x15")],
        "12m",
    ),
    "CoordinatorSessionLeasesExpire": (
        [(f"coordinator_session_lease_expirations_total{{{ON}}}", "0 4 8 12 12")],
        "4m",
    ),
    "CoordinatorSessionLoopLag": (
        [(f"coordinator_session_lag_ratio{{{ON}}}", "0.06x10")],
        "6m",
    ),
    "CoordinatorCertificateExpires": (
        [(f"coordinator_certificate_expiry_timestamp_seconds{{{ON}}}", "86400x20")],
        "10m",
    ),
    "CoordinatorSecurityNotReloaded": (
        [(f"coordinator_security_reload_failures_total{{{ON}}}", "0 0 1 1 1")],
        "4m",
    ),
}
"""Series that make each alert fire, and when it has."""


def alerts() -> list[str]:
    return re.findall(r"- alert: (\w+)", RULES.read_text())


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)


def test_the_rules_are_sound():
    done = promtool("check", "rules", str(RULES), str(KAFKA))
    assert done.returncode == 0, done.stderr
    assert " 0 rules" not in done.stdout


def test_every_alert_has_a_runbook_with_all_its_parts():
    runbooks = (ALERTS / "README.md").read_text().split("\n## ")[1:]
    assert [text.splitlines()[0] for text in runbooks] == alerts()
    for text in runbooks:
        parts = re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE)
        assert parts == ["Meaning", "Impact", "Diagnosis", "Mitigation"], text
    links = re.findall(r"runbook: deploy/alerts/README.md#(\w+)", RULES.read_text())
    assert links == [name.lower() for name in alerts()]


def tried(folder: Path, series, expected) -> subprocess.CompletedProcess[str]:
    """promtool's verdict on how many alerts of a name fire at some times."""
    tests = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) '
                        "or vector(0)",
                        "eval_time": when,
                        "exp_samples": [{"labels": "{}", "value": value}],
                    }
                    for when, alert, value in expected
                ],
            }
        ],
    }
    path = folder / "tests.yml"
    path.write_text(json.dumps(tests))
    return promtool("test", "rules", str(path))


@pytest.mark.parametrize("alert", FIRES)
def test_an_alert_fires_when_it_should_and_not_before(alert, tmp_path):
    series, at = FIRES[alert]
    done = tried(tmp_path, series, [("0m", alert, 0), (at, alert, 1)])
    assert done.returncode == 0, done.stdout + done.stderr


QUIET = {
    "another node decides": [
        (f"coordinator_undecided_seconds{{{ON}}}", "0.4 60 120 180"),
        ('coordinator_undecided_seconds{instance="b:1",job="coordinator"}', "0.5x10"),
        (f"coordinator_store_session_seconds{{{ON}}}", "2x10"),
    ],
    "a node of its own": [
        (f"coordinator_undecided_seconds{{{ON}}}", "0x10"),
        (f"coordinator_store_session_seconds{{{ON}}}", "0x10"),
    ],
}


def test_clusters_are_jobs_of_their_own(tmp_path):
    """One that is well does not hide another that is not."""
    well, ill = 'instance="a:1",job="coordinator-eu"', 'instance="b:1",job="coordinator-us"'
    series = [
        (f'coordinator_shards{{state="leading",{well}}}', "32x10"),
        (f"coordinator_shards_configured{{{well}}}", "32x10"),
        (f"coordinator_is_controller{{{well}}}", "1x10"),
        (f"coordinator_controller_epoch{{{well}}}", "3x10"),
        (f"coordinator_undecided_seconds{{{well}}}", "0x10"),
        (f"coordinator_store_session_seconds{{{well}}}", "2x10"),
        (f"up{{{well}}}", "1x10"),
        (f'coordinator_shards{{state="leading",{ill}}}', "15x10"),
        (f"coordinator_shards_configured{{{ill}}}", "16x10"),
        (f"coordinator_is_controller{{{ill}}}", "0x10"),
        (f"coordinator_controller_epoch{{{ill}}}", "7x10"),
        (f"coordinator_undecided_seconds{{{ill}}}", "300x10"),
        (f"coordinator_store_session_seconds{{{ill}}}", "2x10"),
        (f"up{{{ill}}}", "0x10"),
    ]
    names = ("Down", "ShardsWithoutLeader", "NoController", "Undecided")
    done = tried(tmp_path, series, [("5m", f"Coordinator{name}", 1) for name in names])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", QUIET)
def test_nobody_is_called_while_somebody_decides(case, tmp_path):
    done = tried(tmp_path, QUIET[case], [("3m", "CoordinatorUndecided", 0)])
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_alerts_are_tried():
    assert list(FIRES) == alerts()


def test_a_real_prometheus_sees_the_coordinator_die(tmp_path):
    with Process() as server:
        with Prometheus(tmp_path, [server.metrics], rules=[RULES, KAFKA]) as prometheus:
            prometheus.wait_for("kafka_coordinator_group_groupmetadatamanager_numgroups == 0")
            server.signal(signal.SIGKILL)
            prometheus.wait_for('ALERTS{alertname="CoordinatorDown",alertstate="firing"}')
