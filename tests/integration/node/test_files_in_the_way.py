"""A user's `timer.py` or `coordinator.py` where Python looks for modules before our packages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.patience import HANG_S
from tests.kit.serving import NODES_APART, free_port

ROOT = Path(__file__).parents[3]
USERS = "open('was_run', 'w').close()\nTICK = 1\n"
"""A module of the user's. That it was run shows."""
# The script that pip makes of the entry point in pyproject.toml.
COMMAND = "import sys\nfrom coordinator.cli.main import main\nsys.exit(main())\n"


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, *map(str, arguments)]


def environment() -> dict[str, str]:
    """The product is found, but after what is in the folder."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def run(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )


@pytest.fixture(params=["timer.py", "timer/__init__.py"])
def in_the_way(request, tmp_path) -> Path:
    file = tmp_path / "work" / request.param
    file.parent.mkdir(parents=True)
    file.write_text(USERS)
    return file


@pytest.fixture
def work(in_the_way, tmp_path) -> Path:
    return tmp_path / "work"


def sentence(file: Path) -> str:
    return (
        f"{file} is in the way of the package `timer` that the coordinator brings: "
        "rename it, or start Python elsewhere"
    )


def test_serve_says_in_one_line_which_file_is_in_the_way(work, in_the_way):
    ran = run(work, "-m", "coordinator", "serve")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == f"coordinator: {sentence(in_the_way)}\n"
    assert not (work / "was_run").exists()


def test_what_needs_no_timer_still_works(work):
    ran = run(work, "-m", "coordinator", "groups", "--help")
    assert ran.returncode == 0, ran.stderr
    ran = run(work, "-c", "import coordinator.client, coordinator.assignors")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("module", ["coordinator.testing", "coordinator.testing.plugin"])
def test_a_script_that_imports_the_testing_kit_is_told(work, in_the_way, module):
    (work / "script.py").write_text(f"import {module}\n")
    ran = run(work.parent, work / "script.py")
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == f"ImportError: {sentence(in_the_way)}"
    assert not (work.parent / "was_run").exists()


def test_a_script_called_timer_is_told_that_it_is_in_the_way_itself(tmp_path):
    script = tmp_path / "timer.py"
    script.write_text("import coordinator.testing\n")
    ran = run(tmp_path, script)
    assert ran.stderr.splitlines()[-1] == f"ImportError: {sentence(script)}"


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_command_does_not_look_into_the_working_directory(tmp_path, nodes):
    """Nor do the processes that it starts."""
    work, bin_ = tmp_path / "work", tmp_path / "bin"
    work.mkdir()
    bin_.mkdir()
    for name in ("timer.py", "coordinator.py"):
        (work / name).write_text(USERS + "raise SystemExit(1)\n")
    (bin_ / "coordinator").write_text(COMMAND)
    port = free_port(NODES_APART)
    process = subprocess.Popen(
        [
            *command(bin_ / "coordinator", "serve", "--log-format", "json"),
            *("--nodes", str(nodes), "--listen", f"127.0.0.1:{port}"),
            *("--metrics-listen", "", "--console-listen", "", "--data-dir", "data"),
        ],
        cwd=work,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    lines = []
    try:
        while sum('"event": "serving"' in line for line in lines) < nodes:
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=HANG_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert not (work / "was_run").exists()
