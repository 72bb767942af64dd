"""Markers for folders, time limits for slow tests, and skips that say what is missing."""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what transcripts and tables say now into their files",
    )
