"""Markers for folders, time limits for slow tests, and skips that say what is missing."""

import asyncio
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from coordinator.simulate.loop import SimulatedLoop

# Hypothesis itself has the profile "ci", which plays the same histories in every run.
settings.register_profile("long", print_blob=True)

TESTS = Path(__file__).parent
SLOW_MARKERS = ("spark", "faults", "integration", "browser")
SLOW_TIMEOUT_S = 300
JAVA_MINIMUM = 17  # What PySpark 4 needs.
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # A parent package is missing.
        return False


# The plug-in that users load with `-p`; ours are the first tests to use it.
pytest_plugins = ["coordinator.testing.plugin"] if _exists("coordinator.testing.plugin") else []


def java_version(text: str) -> int | None:
    """The major version in the output of `java -version`: 17 for "17.0.15", 8 for "1.8.0"."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


@functools.cache
def missing_for_spark() -> str | None:
    """Why Spark tests cannot run here; None if they can."""
    if not _exists("pyspark"):
        return "PySpark is not installed (pip install '.[spark]')"
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        return f"no Java found; Spark needs Java {JAVA_MINIMUM} or newer"
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = java_version(answer.stderr + answer.stdout)
    if version is None or version < JAVA_MINIMUM:
        return f"Java {version or 'of unknown version'} found; Spark needs {JAVA_MINIMUM} or newer"
    return None


@functools.cache
def missing_for_faults() -> str | None:
    """Why fault tests cannot run here; None if they can."""
    return None if os.name == "posix" else "faults are injected with POSIX signals"


@functools.cache
def missing_for_browser() -> str | None:
    """Why browser tests cannot run here; None if they can."""
    if any(shutil.which(name) for name in CHROMIUM_NAMES):
        return None
    return f"no browser found ({', '.join(CHROMIUM_NAMES)})"


REQUIREMENTS: dict[str, Callable[[], str | None]] = {
    "spark": missing_for_spark,
    "faults": missing_for_faults,
    "browser": missing_for_browser,
}


@pytest.hookimpl(tryfirst=True)  # Before -m chooses among the tests.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for folder in item.path.relative_to(TESTS).parts[:-1]:
            if folder in SLOW_MARKERS:
                item.add_marker(folder)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, missing in REQUIREMENTS.items():
        if item.get_closest_marker(marker) and (reason := missing()):
            pytest.skip(f"{marker}: {reason}")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give slow tests more time, unless they say how much they need."""
    parts = item.path.relative_to(TESTS).parts[:-1] if TESTS in item.path.parents else ()
    slow = any(item.get_closest_marker(name) or name in parts for name in SLOW_MARKERS)
    if slow and not item.get_closest_marker("timeout"):
        item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that a test runs on."""
    if item.get_closest_marker("virtual_time"):
        return {"simulated": SimulatedLoop}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture(autouse=True)
def no_real_sleep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a fast test whose own code, or whose kit, sleeps in real time."""
    if any(request.node.get_closest_marker(name) for name in SLOW_MARKERS):
        return
    sleep, blocking_sleep = asyncio.sleep, time.sleep

    def refuse_if_called_by_a_test() -> None:
        caller = Path(sys._getframe(2).f_code.co_filename)
        if TESTS in caller.parents:
            pytest.fail(f"{caller.name} sleeps; mark the test with virtual_time, or as slow")

    def checked_sleep(delay: float, result: object = None) -> object:
        loop = asyncio._get_running_loop()
        if delay > 0 and loop is not None and not isinstance(loop, SimulatedLoop):
            refuse_if_called_by_a_test()
        return sleep(delay, result)

    def checked_blocking_sleep(seconds: float) -> None:
        refuse_if_called_by_a_test()
        blocking_sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", checked_sleep)
    monkeypatch.setattr(time, "sleep", checked_blocking_sleep)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what transcripts and tables say now into their files",
    )
