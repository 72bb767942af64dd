"""Builds a wheel whose timer is compiled, if the environment asks for it.

    COMPILE_TIMER=1 python -m build --wheel

A hook of hatchling. The modules go through mypyc as they are; they and their sources both go
into the wheel, where Python prefers the compiled ones. Everything happens in a temporary
folder, so that the checkout stays what it is: pure Python. It takes a C compiler and Python's
headers. Without the variable nothing happens, and the wheel fits every machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "COMPILE_TIMER"

MODULES = ("bucket", "operation", "purgatory", "task", "timer", "wheel")
"""Compiled modules of `timer`. `clock` and `aio` are not worth it: they wait for the system."""

SETUP = """
from mypyc.build import mypycify
from setuptools import setup

sources = {sources!r}
# Assertions stay on, as they do in Python. The name keeps the shared part inside the package.
extensions = mypycify(
    ["--strict", *sources], opt_level="3", debug_level="0", group_name="timer.compiled"
)
setup(name="timer", packages=["timer"], ext_modules=extensions)
"""


class CompiledWheel(BuildHookInterface):
    """Adds the compiled modules to a wheel."""

    _folder: Path | None = None

    def dependencies(self) -> list[str]:
        """Build requirements beyond hatchling."""
        return ["mypy[mypyc]>=1.18"] if VARIABLE in os.environ else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name what came of it.

        Raises:
            RuntimeError: the compiler failed; the message is what it said.
        """
        if VARIABLE not in os.environ or version == "editable":
            return
        self._folder = Path(tempfile.mkdtemp())
        built = compile_timer(Path(self.root), self._folder)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"] |= {
            str(path): path.relative_to(built).as_posix()
            for path in built.rglob("*.*")
            if path.is_file()
        }

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Nothing of it stays behind."""
        if self._folder is not None:
            shutil.rmtree(self._folder)


def compile_timer(root: Path, folder: Path) -> Path:
    """Compile the timer of the project at `root` in an empty folder.

    Returns:
        The folder that holds the package with its compiled modules, and nothing else.
    Raises:
        RuntimeError: the compiler failed; the message is what it said.
    """
    shutil.copytree(root / "timer", folder / "timer", ignore=shutil.ignore_patterns("__pycache__"))
    sources = [f"timer/{module}.py" for module in MODULES]
    (folder / "setup.py").write_text(SETUP.format(sources=sources))
    built = folder / "built"
    answer = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--build-lib", built.name],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        raise RuntimeError(f"mypyc could not compile the timer:\n{answer.stdout}")
    return built
