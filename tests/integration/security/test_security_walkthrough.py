"""The commands of deploy/security.md, carried out as they stand there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from coordinator.cli.main import main
from coordinator.client import BlockingMember, Credentials
from coordinator.security.rules import Operation, parse
from tests.kit.documents import ROOT, blocks, commands
from tests.kit.serving import Process

PAGE = ROOT / "deploy/security.md"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_what_the_page_says_makes_a_node_that_is_secured(tmp_path, capsys):
    lines = [line.text for block in blocks(PAGE, "console") for line in commands(block.text)]
    openssl = [line for line in lines if line.startswith(("openssl", "printf"))]
    assert len(openssl) == 4
    made = [line for line in lines if line.startswith("coordinator token new")]
    assert len(made) == 2
    for command in (*openssl, *made):
        command = re.sub(r"^coordinator ", f"{sys.executable} -m coordinator ", command)
        done = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stderr)
    assert (tmp_path / "operator.token").stat().st_mode & 0o777 == 0o600
    (rules,) = blocks(PAGE, "toml")
    (tmp_path / "rules.toml").write_text(rules.text)
    operator = [
        "--tls-ca",
        str(tmp_path / "ca.pem"),
        "--token-file",
        str(tmp_path / "operator.token"),
    ]
    flags = {
        "tls-cert-file": "node-1.pem", "tls-key-file": "node-1.key", "tls-peer-ca-file": "ca.pem",
        "auth-tokens-file": "tokens", "auth-rules-file": "rules.toml",
    }  # fmt: skip
    given = [part for k, v in flags.items() for part in (f"--{k}", str(tmp_path / v))]
    with Process(*given) as server:
        at = ["--bootstrap", server.address]
        assert main(["groups", "list", *at, *operator]) == 0
        assert main(["cluster", "describe", *at, *operator]) == 0
        capsys.readouterr()
        prometheus = [*operator[:3], str(tmp_path / "prometheus.token")]
        assert main(["groups", "delete", "g", *at, *prometheus]) == 1
        assert "token:prometheus may not admin on group 'g'" in capsys.readouterr().err
        credentials = Credentials(
            ca_file=str(tmp_path / "ca.pem"), token_file=str(tmp_path / "operator.token")
        )
        with BlockingMember(server.address, "g", {"t": 1}, credentials=credentials) as member:
            while not member.assignment:
                member.poll(timeout=0.2)


def test_the_rules_of_the_page_mean_what_it_says():
    (block,) = blocks(PAGE, "toml")
    rules = parse(block.text)
    assert rules.decide("cert:billing-7", Operation.JOIN, "billing-x").is_allowed
    assert not rules.decide("cert:billing-7", Operation.READ, "billing-x").is_allowed
    assert rules.decide("cert:node-1", Operation.ADMIN, None).is_allowed


def test_a_token_is_never_overwritten(tmp_path, capsys):
    path = tmp_path / "token"
    assert main(["token", "new", "etl", "--file", str(path)]) == 0
    token, line = path.read_text().strip(), capsys.readouterr().out
    assert re.fullmatch(r"etl sha256:[0-9a-f]{64}\n", line)
    assert token not in line
    assert main(["token", "new", "etl", "--file", str(path)]) == 1
    assert path.read_text().strip() == token
    assert main(["token", "new", "two words", "--file", str(tmp_path / "other")]) == 1
    assert not (tmp_path / "other").exists()
