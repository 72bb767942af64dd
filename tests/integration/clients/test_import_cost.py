"""Modules and calls of `import coordinator.client`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# Needed by a member that is made, by sources, by tokens or by failed TLS connections: not before.
LATER = [
    "coordinator.assignors.built_in",
    "coordinator.client.transport.connection",
    "coordinator.client.member.machine",
    "coordinator.client.transport.wire",
    "coordinator.handshake",
    "coordinator.sources",
    "coordinator.v1",
    "google.protobuf",
    "ipaddress",
    "pathlib",
    "urllib",
]
MODULES_MAX = 60
CALLS_MAX = 0.25
"""Calls during the import, in those of `import grpc`. The CPU is about twice this share, because
dataclasses are made by compiling code, which is one call."""

CODE = """
import json, sys
calls = 0

def count(frame, event, argument):
    global calls
    if event in ("call", "c_call"):
        calls += 1

def counted(statement):
    global calls
    calls = 0
    sys.setprofile(count)
    exec(statement, {})
    sys.setprofile(None)
    return calls

grpc = counted("import grpc")
before = set(sys.modules)
client = counted("import coordinator.client")
names = set(sys.modules) - before
counted("from coordinator.client import Member; Member('127.0.0.1:1', 'g', {'t': 1})")
print(json.dumps([grpc, client, sorted(names), sorted(set(sys.modules) - before - names)]))
"""


@pytest.fixture(scope="module")
def import_() -> tuple[float, set[str], set[str]]:
    """Calls in those of grpc; modules that the import loads beyond grpc's; those of a member."""
    for _ in range(2):  # The first run may write byte code.
        done = subprocess.run(
            [sys.executable, "-c", CODE], cwd=ROOT, check=True, capture_output=True, text=True
        )
    grpc, client, names, of_a_member = json.loads(done.stdout)
    return client / grpc, set(names), set(of_a_member)


def test_importing_the_client_makes_few_calls_beside_grpc(import_):
    share, _, _ = import_
    assert 0 < share <= CALLS_MAX


def test_importing_the_client_loads_few_modules(import_):
    _, names, _ = import_
    assert "coordinator.client" in names
    assert len(names) <= MODULES_MAX, sorted(names)


@pytest.mark.parametrize("module", LATER)
def test_importing_the_client_does_not_load(import_, module):
    _, names, _ = import_
    assert not {name for name in names if f"{name}.".startswith(f"{module}.")}


def test_a_member_loads_protobuf_and_assignors_and_no_sources(import_):
    _, _, of_a_member = import_
    assert {"google.protobuf", "coordinator.v1.group_pb2"} <= of_a_member
    assert {"coordinator.assignors.built_in", "coordinator.client.member.machine"} <= of_a_member
    assert not [name for name in of_a_member if name.startswith("coordinator.sources")]
