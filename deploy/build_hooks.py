"""Hooks of hatchling: the metadata of both distributions, and wheels other than the plain one.

    COMPILE_TIMER=1 python -m build --wheel     with the timer compiled, for this machine
    WITHOUT_MEMBER=1 python -m build --wheel    requires consumer-group-member, without its files
    PROJECT_URL=https://… python -m build       with links into the public repository there

Compiled modules go through mypyc as they are; they and their sources both go into the wheel, where
Python prefers the compiled ones. Everything happens in a temporary folder, so that the checkout
stays what it is: pure Python. It takes a C compiler and Python's headers. Without the variables
nothing happens, and the wheel holds everything and fits every machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

COMPILE, SPLIT, URL = "COMPILE_TIMER", "WITHOUT_MEMBER", "PROJECT_URL"
MEMBER = "deploy/member/pyproject.toml"

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


class Metadata(MetadataHookInterface):
    """Description and addresses, which depend on where the repository is public."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the description, whose links lead to the repository, and the project's addresses."""
        url = (os.environ.get(URL) or self.config.get("repository", "")).rstrip("/")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_absolute_links(text, url),
        }
        metadata["urls"] = {name: f"{url}{path}" for name, path in ADDRESSES.items() if url}


ADDRESSES = {
    "Source": "",
    "Documentation": "/blob/HEAD/README.md#documentation",
    "Changelog": "/blob/HEAD/CHANGELOG.md",
    "Issues": "/issues",
}
"""Pages of a public repository, by the labels that package indexes know."""

_CODE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:`[^`]*`|[^\[\]`])*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def with_absolute_links(text: str, url: str) -> str:
    """Markdown whose links into the repository lead to `url`; without one, only their words stay.

    Blocks of code are left alone.
    """

    def linked(link: re.Match[str]) -> str:
        mark, words, path = link.groups()
        if not url:
            return words
        return f"{mark}[{words}]({url}/{'raw' if mark else 'blob'}/HEAD/{path})"

    parts = _CODE.split(text)  # Every other one is code.
    parts[::2] = [_LINK.sub(linked, prose) for prose in parts[::2]]
    return "".join(parts)


class Wheel(BuildHookInterface):
    """Adds the compiled modules to a wheel, or leaves the member library out."""

    _folder: Path | None = None

    def dependencies(self) -> list[str]:
        """Build requirements beyond hatchling."""
        return ["mypy[mypyc]>=1.18"] if COMPILE in os.environ else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name what came of it; leave out what another distribution holds.

        Raises:
            RuntimeError: the compiler failed; the message is what it said.
        """
        if version == "editable":
            return
        if SPLIT in os.environ:
            self.build_config.target_config["exclude"] += files_of_member(Path(self.root))
            same = self.metadata.version
            build_data["dependencies"].append(f"consumer-group-member=={same}")
        if COMPILE not in os.environ:
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


def files_of_member(root: Path) -> list[str]:
    """Patterns of the files that the wheel of consumer-group-member holds."""
    project = tomllib.loads((root / MEMBER).read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    return [f"/{path}" for path in included.values()]


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
