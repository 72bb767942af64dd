"""`coordinator topics` against a node: rows, sentences, statuses, and who may change topics."""

from __future__ import annotations

import json

import pytest

from coordinator.assignors import TopicPartition
from coordinator.cli.main import main
from coordinator.operator.admin import GroupAdmin
from coordinator.security.tokens import line_for
from tests.kit.serving import Process

RULES = """
[[rule]]
principal = "token:op"
operations = ["admin"]
groups = "*"

[[rule]]
principal = "token:member"
operations = ["join", "commit", "read"]
groups = "*"
"""


@pytest.fixture(scope="module")
def server():
    with Process() as process:
        yield process


@pytest.fixture
def topics(server, capsys):
    def run(*words: str) -> tuple[int, str, str]:
        status = main(["topics", *words, "--bootstrap", server.address])
        output = capsys.readouterr()
        return status, output.out, output.err

    return run


def test_topics_are_set_listed_and_deleted(server, topics):
    assert topics("set", "orders", "12")[0] == 0
    with GroupAdmin(server.address) as admin:
        admin.commit("billing", {TopicPartition("invoices", 3): 7, TopicPartition("orders", 1): 1})
    status, out, _ = topics("list", "-o", "json")
    assert status == 0
    assert json.loads(out) == [
        {"topic": "invoices", "partitions": 4, "set": None, "reported": 4, "groups": 1},
        {"topic": "orders", "partitions": 12, "set": 12, "reported": 2, "groups": 1},
    ]
    status, out, _ = topics("set", "orders", "6")
    assert status == 1
    assert "has 12 partitions; fewer are set with --shrink" in out
    assert topics("set", "orders", "6", "--shrink")[0] == 0
    status, out, _ = topics("list")
    assert [line.split() for line in out.splitlines()] == [
        ["TOPIC", "PARTITIONS", "SET", "REPORTED", "#GROUPS"],
        ["invoices", "4", "-", "4", "1"],
        ["orders", "6", "6", "2", "1"],
    ]
    status, out, err = topics("delete", "orders", "invoices", "nix", "-o", "json")
    assert status == 1
    assert [(row["topic"], row["reported"], row["error_code"]) for row in json.loads(out)] == [
        ("orders", 2, None),
        ("invoices", None, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("nix", None, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    status, _, err = topics("delete", "orders")
    assert (status, err) == (1, "")


def test_whoever_is_known_sees_topics_and_operators_change_them(tmp_path, capsys, monkeypatch):
    (tmp_path / "rules").write_text(RULES)
    lines = [line_for(name, f"secret-{name}") for name in ("op", "member", "nobody")]
    (tmp_path / "tokens").write_text("\n".join(lines))
    for name in ("op", "member", "nobody"):
        (tmp_path / name).write_text(f"secret-{name}")
    flags = ("--auth-tokens-file", str(tmp_path / "tokens"))
    flags += ("--auth-rules-file", str(tmp_path / "rules"), "--metrics-listen", "")

    def run(who: str, *words: str) -> tuple[int, str]:
        known = ["--token-file", str(tmp_path / who), "--insecure"] if who else []
        status = main(["topics", *words, "--bootstrap", process.address, *known])
        output = capsys.readouterr()
        return status, output.out + output.err

    with Process(*flags) as process:
        assert run("op", "set", "orders", "3")[0] == 0
        for who in ("op", "member", "nobody"):
            status, said = run(who, "list")
            assert status == 0
            assert "orders" in said
        status, said = run("member", "set", "orders", "4")
        assert status == 1
        assert "may not admin on group '__coordinator_topics'" in said
        assert run("member", "delete", "orders")[0] == 1
        assert run("", "list")[0] == 1
