"""The contract breaks no client of the last release: buf compares the two."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROTOS = Path(__file__).parents[3] / "protos"
RELEASED = PROTOS / "released.binpb"
BUF = shutil.which("buf", path=str(Path(sys.executable).parent)) or shutil.which("buf")

pytestmark = pytest.mark.skipif(BUF is None, reason="buf is not installed (pip install '.[dev]')")

BREACHES = [
    ("v1/group.proto", "string group_id = 1 ", "string group_id = 77 "),
    ("v1/group.proto", "int32 session_timeout_ms = 2;", "int64 session_timeout_ms = 2;"),
    ("v1/group.proto", "rpc LeaveGroup(", "rpc QuitGroup("),
    ("v1/errors.proto", r"ILLEGAL_GENERATION = 22;", "ILLEGAL_GENERATION = 9922;"),
    ("durable/v1/records.proto", r"(\w+ \w+) = 1;", r"\1 = 77;"),
]


def breaches(protos: Path) -> str:
    """Breaking changes that buf finds; empty if there are none."""
    done = subprocess.run(
        [BUF, "breaking", str(protos), "--against", str(RELEASED)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == (not done.stdout), done.stderr
    return done.stdout


def test_nothing_that_was_released_is_broken():
    assert breaches(PROTOS) == ""


@pytest.mark.parametrize(("file", "old", "new"), BREACHES)
def test_a_breach_is_found_and_named(file, old, new, tmp_path):
    shutil.copytree(PROTOS, tmp_path / "protos", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "protos/coordinator" / file
    pattern = old if "\\" in new else re.escape(old)
    text, changes = re.subn(pattern, new, path.read_text(), count=1)
    assert changes == 1
    path.write_text(text)
    assert path.name in breaches(tmp_path / "protos")


def test_an_addition_is_no_breach(tmp_path):
    shutil.copytree(PROTOS, tmp_path / "protos", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "protos/coordinator/v1/group.proto"
    path.write_text(path.read_text() + "\nmessage Fresh {\n  string name = 1;\n}\n")
    assert breaches(tmp_path / "protos") == ""
