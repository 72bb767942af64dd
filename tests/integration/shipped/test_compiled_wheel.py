"""The optional build: the timer compiled from the same source, and put to the same tests."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COMPILED = ["bucket", "operation", "purgatory", "task", "timer", "wheel"]

# Loaded into the test run: no test may pass because Python took the sources after all.
PLUGIN = f"""
import importlib, sys

def check():
    for name in {COMPILED}:
        module = importlib.import_module("timer." + name)
        assert not module.__file__.endswith(".py"), module.__file__
        assert type(module.__loader__).__name__ == "ExtensionFileLoader", name

def pytest_sessionstart(session):
    check()

def pytest_sessionfinish(session, exitstatus):
    check()
    print("all compiled")
"""


def missing() -> str | None:
    """Reason for which nothing can be compiled here; None if it can."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"no C compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "no headers of Python (Python.h)"
    if importlib.util.find_spec("mypyc") is None or importlib.util.find_spec("setuptools") is None:
        return "mypyc is not installed (pip install 'mypy[mypyc]')"
    return None


pytestmark = pytest.mark.skipif(missing() is not None, reason=f"compiling: {missing()}")


def run(*command: object, cwd: Path, **environment: str) -> str:
    answer = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout
    return answer.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = ("-m", "build", "--wheel", "--no-isolation", "--outdir", out)
    run(*build, cwd=ROOT, COMPILE_TIMER="1")
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel holds."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    (folder / "all_compiled.py").write_text(PLUGIN)
    return folder


def test_the_wheel_is_for_this_machine_and_has_the_sources_too(wheel: Path) -> None:
    assert not wheel.name.endswith("-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert {f"timer/{name}{suffix}" for name in COMPILED} <= set(names)
    assert {f"timer/{name}.py" for name in COMPILED} <= set(names)
    assert "timer/py.typed" in names
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"coordinator", "timer"}
    assert [name for name in names if "bench" in name] == [], "benchmarks stay in tests/bench"


def test_the_checkout_stays_pure_python(wheel: Path) -> None:
    assert [path for path in ROOT.glob("timer/*") if path.suffix in {".so", ".pyd", ".c"}] == []


@pytest.mark.parametrize("tests", ["timer", "shard", "transcripts"])
def test_the_same_tests_pass_on_the_compiled_timer(tests: str, installed: Path) -> None:
    # Away from the checkout, whose own `timer` would come first; it is there for `tests`.
    shown = run(
        *("-P", "-m", "pytest", "-q", "-p", "all_compiled", "-p", "no:cacheprovider"),
        *("-c", ROOT / "pyproject.toml", "--rootdir", ROOT, "-o", f"pythonpath={installed}"),
        ROOT / "tests" / tests,
        cwd=installed,
        PYTHONPATH=f"{installed}{os.pathsep}{ROOT}",
    )
    assert "all compiled" in shown
    assert " passed" in shown


def test_the_benchmark_says_what_it_measured(installed: Path) -> None:
    shown = run(
        *("-P", "-m", "tests.bench", "timer", "--quick"),
        cwd=installed,
        PYTHONPATH=f"{installed}{os.pathsep}{ROOT}",
    )
    assert "compiled by mypyc" in shown
