"""`tests/run` in small: a group of tests stays in one process, and time-outs can be stretched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.patience import SLOW_TEST_S

ROOT = Path(__file__).parents[3]
FILES = ["tests/printing/test_printable.py", "tests/timer/test_wheel_examples.py"]


def pytest_says(*arguments: str, **environment: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    environment = {k: v for k, v in os.environ.items() if "PYTEST" not in k} | environment
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_each_group_of_tests_has_one_process():
    said = pytest_says("-v", "-n", "2", "--dist", "loadscope", *FILES)
    processes = defaultdict(set)
    for process, file in re.findall(r"^\[(gw\d)\] .* PASSED ([^:\s]+)::", said, re.MULTILINE):
        processes[file].add(process)
    assert sorted(processes) == FILES, said
    assert [len(found) for found in processes.values()] == [1, 1]
    assert set.union(*processes.values()) == {"gw0", "gw1"}


def test_one_variable_stretches_the_time_outs_of_all_tests(request):
    code = "from tests import patience as p; print(p.HANG_S, p.FAST_TEST_S, p.SLOW_TEST_S)"
    figures = [
        [float(word) for word in subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True,
            env={**os.environ, "TESTS_PATIENCE": patience},
        ).stdout.split()]
        for patience in ("1", "3")
    ]  # fmt: skip
    assert figures[1] == [3 * seconds for seconds in figures[0]]
    assert request.node.get_closest_marker("timeout").args == (SLOW_TEST_S,)
