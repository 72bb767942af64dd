"""The chart as Helm renders it: Helm's own library, in a process of its own.

It brings the runtime of another language with threads and signal handlers, which is better not
loaded into the process of the tests.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import yaml

from tests.unit.deploy.image import ROOT

CHART = ROOT / "deploy/helm/coordinator"
RELEASE, NAMESPACE = "groups-one", "work"
MISSING = (
    None
    if importlib.util.find_spec("helm_python")
    else "helm-python-sdk is not installed; there is none for this platform"
)

_PROGRAM = """
import json, sys
import helm_python
chart, name, namespace = sys.argv[1:]
values = json.load(sys.stdin)
try:
    with helm_python.Chart.load(chart) as loaded:
        answer = {"manifests": loaded.render(values, name=name, namespace=namespace)}
except helm_python.HelmError as error:
    answer = {"refused": str(error)}
answer["messages"] = helm_python.lint(chart, values, strict=True)["messages"]
json.dump(answer, sys.stdout)
"""


class ChartRefused(Exception):
    """Helm renders nothing from these values; the message says why."""


def _ask(values: dict) -> dict:
    values = {"insecure": "tls" not in values, **values}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(CHART), RELEASE, NAMESPACE],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def lint(values: dict) -> list[str]:
    """Warnings and errors of `helm lint --strict`."""
    return [message["error"] for message in _ask(values)["messages"] if message["severity"] > 1]


def render(values: dict) -> list[dict]:
    """The resources that an installation with these values makes.

    Raises:
        ChartRefused: the values are not what the chart takes.
    """
    answer = _ask(values)
    if "refused" in answer:
        raise ChartRefused(answer["refused"])
    return [
        document
        for path, text in answer["manifests"].items()
        if not path.endswith(".txt")
        for document in yaml.safe_load_all(text)
        if document
    ]


def one(resources: list[dict], kind: str) -> dict:
    """The only resource of a kind."""
    (found,) = [resource for resource in resources if resource["kind"] == kind]
    return found
