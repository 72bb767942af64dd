"""The Helm chart, rendered by Helm and judged by Kubernetes' schemas, without a cluster."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml
from cloudcoil.models.prometheus_operator import v1 as operator

from coordinator import __version__
from coordinator.security.loading import exposed
from coordinator.settings import Settings
from coordinator.settings.sources import Sources, load
from tests.unit.deploy.chart import CHART, MISSING, NAMESPACE, ChartRefused, lint, one, render
from tests.unit.deploy.image import ROOT, stages

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

STORE = "etcd://one:2379,two:2379/groups"
VARIANTS = {
    "one node": {},
    "in memory": {"store": {"url": "memory"}},
    "three nodes": {
        "replicas": 3,
        "store": {
            "url": STORE, "user": "me", "existingSecret": "etcd", "caKey": "ca.crt",
            "certKey": "tls.crt", "keyKey": "tls.key", "passwordKey": "password",
        },
        "settings": {"max_message_bytes": 2_147_483_647, "replicas": 3, "acks": "all"},
    },
    "three nodes on PostgreSQL": {
        "replicas": 3,
        "store": {
            "url": "postgresql://me@db-1:6432,db-2/app?cluster=jobs",
            "existingSecret": "database",
            "passwordKey": "password",
        },
        "networkPolicy": {"enabled": True},
    },
    "encrypted": {
        "tls": {"existingSecret": "certificate"},
        "settings": {"auth_tokens_file": "/etc/coordinator/tls/tokens"},
        "serviceMonitor": {
            "enabled": True,
            "authorization": {"credentials": {"name": "prometheus", "key": "token"}},
        },
    },
    "everything": {
        "replicas": 2,
        "store": {"url": "zookeeper://zk:2181/groups"},
        "settings": {"group_notice_cancelled_calls": False, "metrics_groups": "a,b-*"},
        "image": {"digest": "sha256:" + "0" * 64},
        "imagePullSecrets": [{"name": "registry"}],
        "networkPolicy": {
            "enabled": True,
            "clients": [{"namespaceSelector": {"matchLabels": {"team": "data"}}}],
            "monitoring": [{"namespaceSelector": {}}],
            "store": [{"podSelector": {"matchLabels": {"app": "zk"}}}],
        },
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboards": {"enabled": True},
        "kafka": {"enabled": True},
        "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "x", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "priorityClassName": "high",
    },
}  # fmt: skip
OPERATORS = {"ServiceMonitor": operator.ServiceMonitor, "PrometheusRule": operator.PrometheusRule}
rendered = functools.cache(lambda variant: render(VARIANTS[variant]))
oldest = yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"][2:6]
each_variant = pytest.mark.parametrize("variant", VARIANTS)


def pod(variant: str) -> dict:
    return one(rendered(variant), "StatefulSet")["spec"]["template"]


def node(variant: str) -> dict:
    return pod(variant)["spec"]["containers"][0]


def environment(variant: str) -> dict[str, str]:
    """Environment of the first pod."""
    found = {entry["name"]: entry.get("value", "1") for entry in node(variant)["env"]}
    return {name: value.replace("$(POD_NAME)", "pod-1") for name, value in found.items()}


def settings_of(variant: str) -> tuple[Settings, dict[str, str]]:
    """Settings of the first pod, with their sources; refused if there is no such setting."""
    return load(Sources(environment=environment(variant)))


@each_variant
@pytest.mark.parametrize("version", [oldest, kubernetes_validate.latest_version()])
def test_kubernetes_knows_every_field(variant, version):
    ours = [document for document in rendered(variant) if document["kind"] not in OPERATORS]
    assert {"StatefulSet", "Service", "ServiceAccount"} <= {row["kind"] for row in ours}
    for resource in ours:
        kubernetes_validate.validate(resource, version, strict=True)
        assert resource["metadata"]["namespace"] == NAMESPACE


@pytest.mark.parametrize(
    ("variant", "kind"),
    [
        ("everything", "ServiceMonitor"),
        ("everything", "PrometheusRule"),
        ("encrypted", "ServiceMonitor"),
    ],
)
def test_the_prometheus_operator_knows_every_field(variant, kind):
    resource = one(rendered(variant), kind)
    known = OPERATORS[kind].model_validate(resource)
    # The models let pass what they do not know, but do not keep it.
    assert known.model_dump(mode="json", by_alias=True, exclude_unset=True) == resource


@each_variant
def test_helm_has_no_objection(variant):
    assert lint(VARIANTS[variant]) == []


@each_variant
def test_a_node_accepts_the_settings_it_is_given(variant):
    settings, origins = settings_of(variant)
    assert (
        settings.security.insecure
        or exposed(settings.security, settings.serving, settings.kafka) == []
    )
    assert node(variant)["args"] == ["serve"]
    kafka = settings.kafka.kafka_address
    assert [entry["containerPort"] for entry in node(variant)["ports"]] == [
        settings.serving.listen_address[1],
        settings.serving.metrics_address[1],
        *([] if kafka is None else [kafka[1]]),
    ]
    for name, value in VARIANTS[variant].get("settings", {}).items():
        assert settings.values()[name] == value, name
        assert origins[name] == f"COORDINATOR_{name.upper()}"


def test_nodes_that_share_a_store_have_numbers_and_files_of_it():
    settings, _ = settings_of("three nodes")
    assert settings.storage.store == STORE
    assert settings.cluster.node_id == 1
    assert one(rendered("three nodes"), "StatefulSet")["spec"]["ordinals"] == {"start": 1}
    (mount,) = [entry for entry in node("three nodes")["volumeMounts"] if entry["name"] == "store"]
    for name in ("ca", "cert", "key", "password"):
        assert getattr(settings.storage, f"store_{name}_file").startswith(f"{mount['mountPath']}/")


@each_variant
def test_variables_that_kubernetes_would_add_do_not_stop_a_node(variant):
    assert pod(variant)["spec"]["enableServiceLinks"] is False


@each_variant
def test_a_node_may_do_nothing_it_does_not_need(variant):
    user, group = stages()[-1].values("USER")[0][0].split(":")
    spec = pod(variant)["spec"]
    around, inside = spec["securityContext"], node(variant)["securityContext"]
    assert (around["runAsUser"], around["runAsGroup"]) == (int(user), int(group))
    assert around["runAsNonRoot"] is True
    assert around["seccompProfile"] == {"type": "RuntimeDefault"}
    assert inside["readOnlyRootFilesystem"] is True
    assert inside["allowPrivilegeEscalation"] is False
    assert inside["capabilities"] == {"drop": ["ALL"]}
    assert spec["automountServiceAccountToken"] is False


@pytest.mark.parametrize("drain_ms", [0, 1, 10_000, 25_500, 600_000])
def test_a_node_has_longer_to_stop_than_it_takes_to_drain(drain_ms):
    resources = render({"drainTimeoutMs": drain_ms})
    spec = one(resources, "StatefulSet")["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] * 1000 > drain_ms
    given = {entry["name"]: entry.get("value") for entry in spec["containers"][0]["env"]}
    assert given["COORDINATOR_DRAIN_TIMEOUT_MS"] == str(drain_ms)


@each_variant
def test_probes_ask_for_health(variant):
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        probe = node(variant)[name]
        if variant == "encrypted":  # The kubelet's own gRPC probe cannot speak TLS.
            command = ["coordinator", "health", "--bootstrap", "localhost:7400"]
            assert probe["exec"]["command"][:4] == command
        else:
            assert probe["grpc"] == {"port": 7400}


@each_variant
def test_whatever_selects_pods_selects_these(variant):
    labels = pod(variant)["metadata"]["labels"].items()
    selectors = [
        document["spec"].get("selector", document["spec"].get("podSelector"))
        for document in rendered(variant)
        if document["kind"] in ("Service", "StatefulSet", "PodDisruptionBudget", "NetworkPolicy")
    ]
    spread = pod(variant)["spec"]["topologySpreadConstraints"]
    assert len(spread) == 2
    selectors += [row["labelSelector"] for row in spread]
    for selector in selectors:
        wanted = selector.get("matchLabels", selector)
        assert wanted
        assert wanted.items() <= labels


def test_members_are_told_a_name_that_the_cluster_resolves():
    stateful = one(rendered("one node"), "StatefulSet")
    (headless,) = [
        document["spec"]
        for document in rendered("one node")
        if document["kind"] == "Service"
        and document["metadata"]["name"] == stateful["spec"]["serviceName"]
    ]
    assert headless["clusterIP"] == "None"
    assert headless["publishNotReadyAddresses"] is True
    host = environment("one node")["COORDINATOR_ADVERTISED_HOST"]
    assert host == f"pod-1.{stateful['spec']['serviceName']}.{NAMESPACE}.svc.cluster.local"


def test_prometheus_finds_each_node_once():
    monitor = one(rendered("everything"), "ServiceMonitor")["spec"]
    wanted = monitor["selector"]["matchLabels"].items()
    (service,) = [
        document
        for document in rendered("everything")
        if document["kind"] == "Service" and wanted <= document["metadata"]["labels"].items()
    ]
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    assert {"targetLabel": "job", "replacement": "coordinator"} in endpoint["relabelings"]


def test_rules_and_dashboards_are_those_of_the_project(tmp_path):
    spec = one(rendered("everything"), "PrometheusRule")["spec"]
    rules = ROOT / "deploy/alerts/coordinator.rules.yml"
    assert spec == yaml.safe_load(rules.read_text())
    shown = one(rendered("everything"), "ConfigMap")["data"]
    for name in ("fleet", "group", "internals"):
        dashboard = json.loads((ROOT / f"deploy/grafana/{name}.json").read_text())
        assert json.loads(shown[f"coordinator-{name}.json"]) == dashboard
    assert len(shown) == 3


@pytest.mark.parametrize(
    ("variant", "expected"), [("everything", [2181]), ("three nodes on PostgreSQL", [6432, 5432])]
)
def test_a_network_policy_lets_out_to_the_stores_servers(variant, expected):
    policy = one(rendered(variant), "NetworkPolicy")["spec"]
    assert [port["port"] for port in policy["egress"][-1]["ports"]] == expected


def test_a_network_policy_lets_in_who_is_named_and_out_what_is_needed():
    policy = one(rendered("everything"), "NetworkPolicy")["spec"]
    members, monitoring = policy["ingress"]
    assert len(members["from"]) == 2  # The nodes themselves, and the clients.
    assert len(monitoring["from"]) == 1
    ports = [port["port"] for rule in policy["egress"] for port in rule["ports"]]
    assert ports == [53, 53, 7400, 2181]
    assert [port["port"] for port in members["ports"]] == [7400, 9092]


def test_kafkas_clients_are_told_the_name_of_each_node():
    settings, _ = settings_of("everything")
    host, port = settings.kafka.kafka_advertised_address
    assert (host, port) == (settings.serving.advertised_host, 9092)
    for service in (
        document for document in rendered("everything") if document["kind"] == "Service"
    ):
        assert 9092 in [port["port"] for port in service["spec"]["ports"]]


def test_data_outlives_a_pod_if_there_is_no_other_store():
    claimed = {
        variant: "volumeClaimTemplates" in one(rendered(variant), "StatefulSet")["spec"]
        for variant in VARIANTS
    }
    assert [variant for variant, is_claimed in claimed.items() if is_claimed] == [
        "one node",
        "encrypted",
    ]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"insecure": False}, "give tls.existingSecret"),
        ({"tls": {"existingSecret": "certificate"}}, "give tls.existingSecret"),
        ({"replicas": 2}, "2 replicas need a store that they share"),
        ({"replicas": 0}, "at '/replicas'"),
        ({"replica": 1}, "'replica' not allowed"),
        ({"settings": {"group_max_sise": 5}}, "'group_max_sise' not allowed"),
        ({"settings": {"shards": 4096}}, "at '/settings/shards'"),
        ({"settings": {"listen": "0.0.0.0:1"}}, "'listen' not allowed"),
        ({"settings": {"acks": "some"}}, "at '/settings/acks'"),
        ({"store": {"url": "redis://one:6379/x"}}, "at '/store/url'"),
        ({"store": {"url": "postgresql://me:secret@one/x"}}, "at '/store/url'"),
        ({"store": {"url": STORE, "caKey": "ca.crt"}}, "which secret"),
        ({"terminationGracePeriodSeconds": 10}, "a drain may take 10 s: give more"),
        ({"image": {"digest": "latest"}}, "at '/image/digest'"),
    ],
)
def test_values_that_cannot_work_are_refused(values, message):
    with pytest.raises(ChartRefused, match=re.escape(message)):
        render(values)


def test_the_schema_is_what_the_settings_say():
    command = [sys.executable, str(ROOT / "deploy/helm/schema.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) - {"global"} == set(values)


def test_the_chart_has_the_versions_of_the_package():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    assert node("one node")["image"] == f"consumer-group-coordinator:{__version__}"


@pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="no promtool found (on Debian: apt-get install prometheus)",
)
def test_the_rules_in_the_chart_are_sound(tmp_path):
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps(one(rendered("everything"), "PrometheusRule")["spec"]))
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
