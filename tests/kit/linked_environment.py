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
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, PathDistribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
NO_NETWORK = [
    "NewConnectionError",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "ConnectTimeoutError",
    "ProxyError",
    "from versions: none",  # The message if pip does not retry.
]


def build_wheel(out: Path) -> Path:
    """The project's wheel, in a folder."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built


def make_environment(home: Path, wheel: Path, extra: str) -> tuple[Path, set[str]]:
    """An environment with our wheel and one of its extras.

    Returns:
        Its interpreter, and the requirements that are not installed here, so that they could not be
        linked.
    """
    venv.create(home, with_pip=False, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    python = home / "bin" / "python"
    found: dict[str, Distribution] = {}
    missing: set[str] = set()

    def gather(asking: Distribution, extras: set[str]) -> None:
        for requirement in _requirements(asking, extras):
            name = canonicalize_name(requirement.name)
            if name in found and not requirement.extras:
                continue
            try:
                asked = distribution(name)
            except PackageNotFoundError:
                missing.add(str(requirement))
                continue
            assert requirement.specifier.contains(asked.version, prereleases=True), requirement
            found[name] = asked
            gather(asked, set(requirement.extras))

    done = install(python, [str(wheel)])
    assert done.returncode == 0, done.stderr
    (ours,) = packages.glob("consumer_group_coordinator-*.dist-info")
    gather(PathDistribution(ours), {extra})
    for distributed in found.values():
        _link(distributed, packages, python)
    return python, missing


def install(python: Path, requirements: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Install what could not be linked, by `uv` from the index, without what it asks for."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    command = [uv, "pip", "install", "-q", "--no-deps", "--python", python, *requirements]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _requirements(asking: Distribution, extras: set[str]) -> Iterator[Requirement]:
    """Requirements of a distribution with some of its extras, which may name each other."""
    for requirement in map(Requirement, asking.requires or ()):
        marker, requirement.marker = requirement.marker, None
        if marker and not any(marker.evaluate({"extra": extra}) for extra in extras or {""}):
            continue
        if canonicalize_name(requirement.name) == canonicalize_name(asking.metadata["Name"]):
            yield from _requirements(asking, requirement.extras)
        else:
            yield requirement


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
            here.unlink(missing_ok=True)  # Some leave the same file beside their packages.
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
