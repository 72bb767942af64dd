"""`tests/run` over a small project: what a slow test that fails, once or always, comes to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).parents[2] / "run"

SETUP = """
VENV=.venv
say() { echo "=== $*"; }
install_project() { :; }
"""
CONFTEST = """
def pytest_addoption(parser):
    parser.addoption("--fast", action="store_true")
    parser.addoption("--slow", action="store_true")

def pytest_collection_modifyitems(config, items):
    items[:] = [item for item in items if ("slow" in item.name) == config.option.slow]
"""
FAILS_ONCE = """
def test_{name}(request):
    marker = request.config.rootpath / "{name}"
    tried = marker.exists()
    marker.touch()
    assert tried
"""
PASSES = "def test_{name}(): pass\n"
FAILS = "def test_{name}(): raise AssertionError\n"


def run(project: Path, **tests: str) -> tuple[int, list[str]]:
    """Run `tests/run` with these tests; return its exit status and its last lines."""
    (project / "tests").mkdir()
    (project / "deploy").mkdir()
    (project / ".venv/bin").mkdir(parents=True)
    shutil.copy(RUN, project / "tests/run")
    (project / "deploy/venv.sh").write_text(SETUP)
    (project / "pytest.ini").write_text("[pytest]\naddopts = -ra\n")
    (project / "conftest.py").write_text(CONFTEST)
    body = "".join(text.format(name=name) for name, text in tests.items())
    (project / "tests/test_all.py").write_text(body)
    for name, command in {
        "python": f'exec {sys.executable} "$@"', "poe": "exit 0", "dpkg": "exit 0",
    }.items():  # fmt: skip
        script = project / ".venv/bin" / name
        script.write_text(f"#!/bin/sh\n{command}\n")
        script.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if "PYTEST" not in k} | {
        "TESTS_WORKERS": "1"
    }
    done = subprocess.run(
        ["bash", "tests/run"], cwd=project, env=environment, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.returncode, done.stdout.rpartition("\n\n")[2].splitlines()


def test_what_passes_the_second_time_is_named(tmp_path):
    status, end = run(tmp_path, quick=PASSES, slow=PASSES, slow_race=FAILS_ONCE)
    assert end == [
        "TRIED TWICE: tests/test_all.py::test_slow_race",
        "3 passed, 0 failed, 0 skipped",
    ]
    assert status == 0


def test_what_fails_twice_fails_the_run(tmp_path):
    status, end = run(tmp_path, quick=PASSES, slow_race=FAILS_ONCE, slow_broken=FAILS)
    assert end == [
        "TRIED TWICE: tests/test_all.py::test_slow_broken",
        "TRIED TWICE: tests/test_all.py::test_slow_race",
        "FAILED: The slow tests that failed, once more (pytest's exit status 1)",
        "2 passed, 1 failed, 0 skipped",
    ]
    assert status == 1


def test_fast_tests_have_one_try(tmp_path):
    status, end = run(tmp_path, quick=FAILS_ONCE, slow=PASSES)
    assert end == [
        "FAILED: The fast tests (pytest's exit status 1)", "1 passed, 1 failed, 0 skipped",
    ]  # fmt: skip
    assert status == 1


def test_many_failures_are_no_chance(tmp_path):
    names = {f"slow_{number}": FAILS_ONCE for number in range(13)}
    status, end = run(tmp_path, quick=PASSES, **names)
    assert end == [
        "FAILED: The slow tests (pytest's exit status 1)", "1 passed, 13 failed, 0 skipped",
    ]  # fmt: skip
    assert status == 1
