"""Decisions about session groups do not depend on the order in which a process hashes texts."""

from __future__ import annotations

import os
import subprocess
import sys

SEEDS = ("1", "2")


def test_two_processes_that_hash_differently_write_the_same_recording(tmp_path):
    for seed in SEEDS:
        subprocess.run(
            [sys.executable, "-m", "tests.unit.runtime.session_story", str(tmp_path / seed)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        )
    first, second = ((tmp_path / seed).read_text() for seed in SEEDS)
    assert first == second
