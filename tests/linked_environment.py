"""Environments with a part of what this one has, by links instead of an installation.

An environment gets what an extra requires, and what that requires in turn, and nothing else: a
requirement that the extra does not declare is missing there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, PathDistribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def make_environment(home: Path, wheel: Path, extra: str) -> tuple[Path, set[str]]:
    """An environment with our wheel and one of its extras.

    Returns:
        Its interpreter, and the requirements that are not installed here, so that they could not be
        linked.
    """
    venv.create(home, with_pip=False, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (ours,) = map(PathDistribution, packages.glob("*.dist-info"))
    python = home / "bin" / "python"
    found: dict[str, Distribution] = {}
    missing: set[str] = set()
    _gather(ours, {extra}, found, missing)
    for distributed in found.values():
        _link(distributed, packages, python)
    return python, missing


def install(python: Path, requirements: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Install what could not be linked, by `uv` from the index, without what it asks for."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    command = [uv, "pip", "install", "-q", "--no-deps", "--python", python, *requirements]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _gather(
    asking: Distribution, extras: set[str], found: dict[str, Distribution], missing: set[str]
) -> None:
    for text in asking.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in extras or {""}):
            continue
        name = canonicalize_name(requirement.name)
        if name == canonicalize_name(asking.metadata["Name"]):
            _gather(asking, set(requirement.extras), found, missing)
            continue
        try:
            asked = distribution(name)
        except PackageNotFoundError:
            missing.add(text.partition(";")[0].strip())
            continue
        assert requirement.specifier.contains(asked.version, prereleases=True), text
        if name not in found or requirement.extras:
            found[name] = asked
            _gather(asked, set(requirement.extras), found, missing)


def _link(distributed: Distribution, packages: Path, python: Path) -> None:
    """Make folders and link files: several distributions share the folder `google`."""
    for file in distributed.files or ():
        there = Path(str(distributed.locate_file(file)))
        if file.parts[0] == "..":
            if "bin" in file.parts:
                _copy_script(there, python)
        elif there.exists():  # Byte code was made here, or was not.
            here = packages / file
            here.parent.mkdir(parents=True, exist_ok=True)
            here.symlink_to(there)


def _copy_script(there: Path, python: Path) -> None:
    """Copy a command, for the interpreter of its new environment if it is a script."""
    here = python.parent / there.name
    code = there.read_bytes()
    if not code.startswith(b"#!"):
        here.symlink_to(there)
        return
    here.write_bytes(b"#!" + os.fsencode(python) + b"\n" + code.partition(b"\n")[2])
    here.chmod(0o755)
