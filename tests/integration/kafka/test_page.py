"""The page for users of Kafka's clients: its commands are run, its table is that of the tests."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.integration.kafka.clients import CLIENTS, Client
from tests.integration.operations.shell import Shell, play_page
from tests.kit.documents import ROOT

PAGE = ROOT / "deploy/docs/kafka-clients.md"
BEGIN, END = (
    "<!-- clients: written by tests/integration/kafka/test_page.py --rewrite -->",
    "<!-- /clients -->",
)


def table() -> str:
    """The table of the clients that are tested."""
    head = (
        "client",
        "version",
        "assignors",
        "static members",
        "commits",
        "restart of the node",
        "settings that it needs",
    )
    rows = [head, ("---",) * len(head), *map(_row, CLIENTS)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(client: Client) -> tuple[str, ...]:
    restart = "kept" if client.survives else "joins anew" if client.returns else "ends"
    assignors = ", ".join(f"`{assignor}`" for assignor in client.assignors)
    has_static, commits = ("yes" if flag else "–" for flag in (client.is_static, client.commits))
    needs = ", ".join(f"`{name}: {json.dumps(value)}`" for name, value in client.needs.items())
    return client.name, client.version, assignors, has_static, commits, restart, needs or "–"


def test_the_table_is_that_of_the_tests(request):
    page = PAGE.read_text()
    written = f"{BEGIN}\n{table()}\n{END}"
    new = re.sub(f"{BEGIN}.*?{END}", lambda _: written, page, flags=re.DOTALL)
    if request.config.option.rewrite:
        PAGE.write_text(new)
    assert new == PAGE.read_text(), "pytest tests/integration/kafka/test_page.py --rewrite"


def test_clients_in_python_come_with_the_extra_of_the_tests():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def all_of(extra: str) -> dict[str, Requirement]:
        found: dict[str, Requirement] = {}
        for wanted in map(Requirement, extras[extra]):
            if wanted.name == project["name"]:
                found |= {
                    name: value for each in wanted.extras for name, value in all_of(each).items()
                }
            else:
                found[wanted.name] = wanted
        return found

    wanted = all_of("test")
    for client in CLIENTS:
        if client.family == "python":
            assert client.name in wanted, f"a fresh clone has no {client.name}"
            assert wanted[client.name].specifier.contains(client.version)


@pytest.mark.integration
def test_the_page_works_as_printed(tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with Shell(tmp_path, {"PATH": path}) as shell:
        play_page(PAGE, shell, tmp_path)
