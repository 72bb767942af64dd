"""Writes values.schema.json of the chart: the chart's own values, and every setting.

    python deploy/helm/schema.py            # after a change of a setting, or of this file
    python deploy/helm/schema.py --check    # exit status 1 if the file is not what this writes

The settings are read from the metadata of their fields, so that `helm install` refuses what the
service would refuse.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from coordinator.core.setting import SettingBounds
from coordinator.settings import SETTINGS

PATH = Path(__file__).parent / "coordinator/values.schema.json"
OWNED = {
    "listen", "metrics_listen", "console_listen", "advertised_host", "advertised_port", "node_id",
    "nodes", "share", "store", "store_user", "store_ca_file", "store_cert_file", "store_key_file",
    "store_password_file", "data_dir", "drain_timeout_ms", "log_format", "tls_cert_file",
    "tls_key_file", "tls_peer_ca_file", "insecure", "kafka_listen", "kafka_advertise",
}  # fmt: skip
"""Settings that the chart itself gives, from other values."""

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
LABELS: Schema = {"type": "object", "additionalProperties": TEXT}
OBJECT: Schema = {"type": "object"}
OBJECTS: Schema = {"type": "array", "items": OBJECT}
SIZE: Schema = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?([KMGTP]i?)?$"}


def chosen(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def number(lowest: int, highest: int | None = None) -> Schema:
    bounds = {"minimum": lowest} | ({} if highest is None else {"maximum": highest})
    return {"type": "integer", **bounds}


def table(**properties: Schema) -> Schema:
    """An object with these keys and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def settings() -> Schema:
    """Schema of the chart's `settings`."""
    kinds = {str: "string", int: "integer", bool: "boolean"}
    found: dict[str, Schema] = {}
    for name, setting in SETTINGS.items():
        if name in OWNED:
            continue
        schema = {"type": kinds[type(setting.default)], "description": setting.description()}
        if setting.bounds is not None:
            schema |= number(setting.bounds.low, setting.bounds.high)
        if setting.choices:
            schema |= chosen(*setting.choices)
        found[name] = schema
    return table(**found)


def values() -> Schema:
    """The whole schema."""
    drain = SETTINGS["drain_timeout_ms"].bounds or SettingBounds(0)
    probe = table(
        periodSeconds=number(1),
        timeoutSeconds=number(1),
        failureThreshold=number(1),
        successThreshold=number(1, 1),
        initialDelaySeconds=number(0),
    )
    spread = table(
        topologyKey=TEXT,
        maxSkew=number(1),
        minDomains=number(1),
        whenUnsatisfiable=chosen("DoNotSchedule", "ScheduleAnyway"),
        nodeAffinityPolicy=chosen("Honor", "Ignore"),
        nodeTaintsPolicy=chosen("Honor", "Ignore"),
    ) | {"required": ["topologyKey", "maxSkew", "whenUnsatisfiable"]}
    # Without a password: this text is in the pod's description.
    servers = r"[^/,:@]+{port}(,[^/,:@]+{port})*"
    store_url = (
        "^(sqlite|memory"
        f"|(etcd|zookeeper)://{servers.format(port=':[0-9]+')}/[A-Za-z0-9_.-]+"
        rf"|postgresql://([^/,:@]+@)?{servers.format(port='(:[0-9]+)?')}/[^/?]+(\?[^#]+)?)$"
    )
    monitor = table(
        enabled=FLAG,
        labels=LABELS,
        interval={"type": "string", "pattern": r"^[0-9]+(ms|s|m)$"},
        authorization=OBJECT,
    )
    top = table(
        replicas=number(1, 64),
        store=table(
            url={"type": "string", "pattern": store_url},
            user=TEXT, existingSecret=TEXT, caKey=TEXT, certKey=TEXT, keyKey=TEXT, passwordKey=TEXT,
        ),
        settings=settings(),
        drainTimeoutMs=number(drain.low, drain.high),
        terminationGracePeriodSeconds={"type": ["integer", "null"], "minimum": 1},
        tls=table(existingSecret=TEXT),
        insecure=FLAG,
        kafka=table(enabled=FLAG),
        image=table(
            repository=TEXT | {"minLength": 1},
            tag=TEXT,
            digest={"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
            pullPolicy=chosen("Always", "IfNotPresent", "Never"),
        ),
        imagePullSecrets=OBJECTS,
        persistence=table(
            size=SIZE,
            storageClassName={"type": ["string", "null"]},
            accessModes={
                "type": "array",
                "items": chosen("ReadWriteOnce", "ReadWriteOncePod"),
                "minItems": 1,
            },
        ),
        service=table(type=chosen("ClusterIP", "NodePort", "LoadBalancer"), annotations=LABELS),
        serviceAccount=table(annotations=LABELS),
        probes=table(startup=probe, readiness=probe, liveness=probe),
        podDisruptionBudget=table(
            enabled=FLAG,
            maxUnavailable={
                "anyOf": [number(1), {"type": "string", "pattern": "^[1-9][0-9]?%$"}]
            },
        ),
        topologySpread={"type": "array", "items": spread},
        networkPolicy=table(enabled=FLAG, clients=OBJECTS, monitoring=OBJECTS, store=OBJECTS),
        serviceMonitor=monitor,
        prometheusRule=table(enabled=FLAG, labels=LABELS),
        dashboards=table(enabled=FLAG, labels=LABELS),
        resources=OBJECT,
        clusterDomain=TEXT | {"minLength": 1},
        podAnnotations=LABELS,
        podLabels=LABELS,
        nodeSelector=LABELS,
        tolerations=OBJECTS,
        affinity=OBJECT,
        priorityClassName=TEXT,
    )  # fmt: skip
    # Helm itself puts this there when the chart is part of another.
    top["properties"]["global"] = OBJECT
    return {"$schema": "http://json-schema.org/draft-07/schema#", **top}


def main() -> int:
    text = json.dumps(values(), indent=2, ensure_ascii=False) + "\n"
    if "--check" in sys.argv[1:]:
        if PATH.read_text() == text:
            return 0
        print(f"{PATH.name} is not what the settings say: python deploy/helm/schema.py")
        return 1
    PATH.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
