"""Wheels as they are built and read by tests."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ROOT / "deploy" / "wheels"
SERVER = "consumer-group-coordinator"
NO_NETWORK = [
    "NewConnectionError",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "ConnectTimeoutError",
    "ProxyError",
    "from versions: none",  # The message if pip does not retry.
]


@functools.cache
def build_hooks() -> ModuleType:
    """The hooks of the build, which says which files and requirements each wheel has."""
    spec = importlib.util.spec_from_file_location("build_hooks", ROOT / "deploy/build_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def code_of_wheels() -> dict[str, set[Path]]:
    """Python files that each wheel of a release holds, by the wheel's name; nothing is built."""
    hooks = build_hooks()
    held = {
        part["project"]["name"]: {
            file for path in hooks.files_of(part) for file in _code_in(ROOT / path)
        }
        for part in hooks.parts()
    }
    everything = {*_code_in(ROOT / "coordinator"), *_code_in(ROOT / "timer")}
    return held | {SERVER: everything.difference(*held.values())}


def _code_in(path: Path) -> Iterator[Path]:
    yield from path.rglob("*.py") if path.is_dir() else [path] * (path.suffix == ".py")


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Run a command and return what it printed; fail the test, with its words, if it fails."""
    answer = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))}\n{answer.stdout}", pytrace=False)
    return answer.stdout


def build(folder: Path, out: Path, **environment: str) -> Path:
    """The wheel of the project in a folder."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, folder]
    run(*command, **environment)
    (built,) = out.glob("*.whl")
    return built


def files(wheel: Path) -> set[str]:
    """The files of a wheel without its metadata."""
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if not name.partition("/")[0].endswith(".dist-info")}


def metadata(wheel: Path) -> tuple[dict[str, list[str]], str]:
    """The fields of a wheel's metadata, and its description."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        message = HeaderParser().parsestr(archive.read(name).decode())
    fields = {key: message.get_all(key, []) for key in message}
    return fields, message.get_payload()
