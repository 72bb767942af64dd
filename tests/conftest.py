"""Markers for folders, time limits, groups of parallel runs, skips that say what is missing."""

import asyncio
import functools
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest
from hypothesis import HealthCheck, settings

from coordinator.testing.engine.loop import SimulatedLoop
from tests.kit.patience import FAST_TEST_S, PATIENCE, SLOW_TEST_S

# No example fails because it took long, and the same examples are played in every run: a test that
# fails has found something about the change. The profile "long" looks for new ones.
settings.register_profile(
    "unhurried",
    settings.default,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unhurried")
settings.register_profile(
    "long", settings.get_profile("unhurried"), derandomize=False, print_blob=True
)

TESTS = Path(__file__).parent
SLOW_MARKERS = ("spark", "faults", "integration", "browser")
ALONE = "alone"
"""Marker of slow tests that run after all others, one at a time."""
ALONE_IN = TESTS / "integration/spark"
"""Folder of all of them: to import the others takes longer than to run some of these."""
JAVA_MINIMUM = 17  # PySpark 4 needs it.
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
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


@functools.cache
def missing_for_spark() -> str | None:
    """Reason that Spark tests cannot run here; None if they can."""
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
    """Reason that fault tests cannot run here; None if they can."""
    return None if os.name == "posix" else "faults are injected with POSIX signals"


@functools.cache
def missing_for_browser() -> str | None:
    """Reason that browser tests cannot run here; None if they can."""
    if any(shutil.which(name) for name in CHROMIUM_NAMES):
        return None
    return f"no browser found ({', '.join(CHROMIUM_NAMES)})"


REQUIREMENTS: dict[str, Callable[[], str | None]] = {
    "spark": missing_for_spark,
    "faults": missing_for_faults,
    "browser": missing_for_browser,
}


# With `--dist loadscope`, the tests of a group run in one process, one after the other. A file is a
# group, but for those that share something costly, or may not run at the same time.
FOLDER_GROUPS = {"integration/browser", "integration/kafka", "integration/spark", "unit/storage"}
FILE_GROUPS = dict.fromkeys(
    (
        "test_extras",
        "test_image_build",
        "test_packaging",
    ),
    "installing",
)
BEGIN_FIRST = [
    "integration/spark",
    "installing",
    "integration/kafka",
    "campaigns/faults",
    "unit/storage",
    "integration/shipped",
    "integration/operations",
    "integration/clients",
    "integration/browser",
]
"""Groups and folders by the time of their longest group, longest first: what begins late and takes
long is what the run waits for at its end. The worlds are last, since they use all cores."""


def group_of(path: PurePath) -> str:
    """Group of a test by its path within this folder."""
    folder = "/".join(path.parts[:2])
    if folder in FOLDER_GROUPS:
        return folder
    return FILE_GROUPS.get(path.stem, path.as_posix())


def _rank(item: pytest.Item) -> int:
    group = group_of(item.path.relative_to(TESTS))
    places = (n for n, head in enumerate(BEGIN_FIRST) if f"{group}/".startswith(f"{head}/"))
    return next(places, len(BEGIN_FIRST)) if _is_slow(item) else len(BEGIN_FIRST)


def _is_slow(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in SLOW_MARKERS)


@pytest.hookimpl(optionalhook=True)  # pytest-xdist has it, and is optional.
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    # Its own way, `--dist loadgroup`, writes the group into a test's name, which pytest 9.2 does
    # not let it do: there it would part the tests of a group.
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = config.rootpath / nodeid.partition("::")[0]
            return group_of(path.relative_to(TESTS))

    return GroupScheduling(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.hookimpl(tryfirst=True)  # Before -m chooses among the tests.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for folder in item.path.relative_to(TESTS).parts[:-1]:
            if folder in SLOW_MARKERS:
                item.add_marker(folder)
        if item.get_closest_marker(ALONE) and ALONE_IN not in item.path.parents:
            raise pytest.UsageError(f"{item.nodeid} is marked {ALONE} and not below {ALONE_IN}")
        usual_s = SLOW_TEST_S if _is_slow(item) else FAST_TEST_S
        stated = item.get_closest_marker("timeout")
        seconds = stated.args[0] * PATIENCE if stated else usual_s
        item.add_marker(pytest.mark.timeout(seconds), append=False)
    items.sort(key=_rank)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # A shell has its jobs in the background ignore Ctrl-C, and so would commands under test.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    any_marker = " or ".join(SLOW_MARKERS)
    if config.option.fast:
        config.option.markexpr = f"not ({any_marker})"
        # To import the slow tests takes longer than many a fast one.
        for folder in SLOW_MARKERS:
            config.addinivalue_line("norecursedirs", folder)
    elif config.option.slow:
        config.option.markexpr = f"({any_marker}) and not {ALONE}"
    elif config.option.alone:
        config.option.markexpr = ALONE
        config.args = [str(ALONE_IN)]


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, missing in REQUIREMENTS.items():
        if item.get_closest_marker(marker) and (reason := missing()):
            pytest.skip(f"{marker}: {reason}")


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
    if _is_slow(request.node):
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
        "--fast",
        action="store_true",
        help=f"only tests without a marker of {', '.join(SLOW_MARKERS)}",
    )
    parser.addoption(
        "--slow",
        action="store_true",
        help=f"only tests with such a marker, without those marked {ALONE}",
    )
    parser.addoption(
        "--alone",
        action="store_true",
        help=f"only tests marked {ALONE}: they start several Sparks at a time",
    )
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what transcripts and tables say now into their files",
    )
