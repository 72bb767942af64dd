"""The unit: sound, hardened, and with times that fit the settings."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.settings import Settings
from coordinator.settings.sources import Sources, load

UNIT = Path(__file__).parents[3] / "deploy/systemd/coordinator.service"
MOST_EXPOSED = 20
"""Highest exposure, in tenths of systemd's score of 0 to 10: up to 2 it says OK."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="no systemd-analyze found (on Debian: apt-get install systemd)",
)


def directives(name: str) -> list[str]:
    """The values of every line `name=`, in their order."""
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), flags=re.MULTILINE)


def analyze(unit: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *words, str(unit)], capture_output=True, text=True, check=False
    )


@pytest.fixture
def installed(tmp_path) -> Path:
    """The unit as it would be, with a program that is there."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/coordinator/bin/coordinator", sys.executable))
    return unit


@needs_systemd
def test_systemd_understands_every_line(installed):
    done = analyze(installed, "verify")
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
def test_systemd_finds_it_hardened(installed):
    done = analyze(
        installed, "security", "--no-pager", "--offline=yes", f"--threshold={MOST_EXPOSED}"
    )
    assert done.returncode == 0, done.stdout
    assert "Overall exposure level" in done.stdout


def test_it_starts_the_service_with_settings_that_there_are():
    ((entry, command, *flags),) = map(shlex.split, directives("ExecStart"))
    assert (Path(entry).name, command, flags) == ("coordinator", "serve", [])
    environment = dict(line.split("=", 1) for line in directives("Environment"))
    settings, _ = load(Sources(flags={}, environment=environment, file=None))
    assert settings.storage.data_dir == f"%S/{directives('StateDirectory')[0]}"


def test_it_is_given_longer_to_stop_than_it_takes_to_drain():
    (timeout,) = directives("TimeoutStopSec")
    assert int(timeout.removesuffix("s")) * 1000 > Settings().serving.drain_timeout_ms


def test_it_waits_to_be_told_that_the_service_serves():
    assert directives("Type") == ["notify"]
    assert "AF_UNIX" in directives("RestrictAddressFamilies")[0].split()
